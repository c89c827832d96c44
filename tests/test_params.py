"""Names to classes, and settings by name."""

from __future__ import annotations

import fractions
import json

import numpy as np
import pytest

from lnbnn.classifiers import CLASSIFIERS
from lnbnn.descriptors import DESCRIPTORS
from lnbnn.errors import InvalidInputError, LnbnnError, MissingExtraError, UnknownNameError
from lnbnn.indexes import INDEXES
from lnbnn.params import Configurable, check_choice, check_positive, check_whole, plain, resolve

REGISTRIES = {"descriptor": DESCRIPTORS, "index": INDEXES, "method": CLASSIFIERS}
ENTRIES = [(kind, name) for kind, registry in REGISTRIES.items() for name in registry]


def test_resolve_imports_what_the_name_stands_for():
    assert resolve({"fraction": "fractions:Fraction"}, "fraction", "number") is fractions.Fraction


def test_unknown_name_lists_the_choices_in_order():
    with pytest.raises(UnknownNameError, match=r"^Unknown number 'x'; choose one of: a, b\.$"):
        resolve({"b": "m:B", "a": "m:A"}, "x", "number")


def test_unknown_name_is_a_value_error_too():
    with pytest.raises(ValueError, match="choose one of"):
        resolve({}, "x", "number")
    assert issubclass(UnknownNameError, LnbnnError)


def test_nothing_is_imported_for_a_name_that_is_not_asked_for():
    registry = {"good": "fractions:Fraction", "bad": "no_such_module:Thing"}
    assert resolve(registry, "good", "number") is fractions.Fraction
    with pytest.raises(ModuleNotFoundError):
        resolve(registry, "bad", "number")


@pytest.mark.parametrize(("kind", "name"), ENTRIES)
def test_every_entry_resolves_to_a_class_of_that_name(kind, name):
    try:
        found = resolve(REGISTRIES[kind], f"{name}x" if name[-1] in ":@" else name, kind)
    except MissingExtraError as error:
        pytest.skip(str(error))
    assert isinstance(found, type)
    assert found.__doc__
    own = found.method if kind == "method" else found.name
    assert name.rstrip("@") == own or (own, kind) == ("deep", "descriptor")  # a family of networks, small ones too


@pytest.mark.parametrize(("kind", "name"), ENTRIES)
def test_names_are_lower_case_with_dashes(kind, name):
    assert name == name.lower()
    assert not set(name) & set(" _/.")


@pytest.mark.parametrize("name", ["net:a.b", "net:a@b", "net:C:\\\\x"])
def test_a_family_stands_for_all_names_that_go_on_after_it(name):
    assert resolve({"net:": "fractions:Fraction"}, name, "number") is fractions.Fraction


@pytest.mark.parametrize("name", ["net", "net:", "", "deep@", "other:x"])
def test_a_family_is_no_name_alone(name):
    registry = {"net:": "fractions:Fraction", "deep": "fractions:Fraction", "deep@": "fractions:Fraction"}
    with pytest.raises(UnknownNameError, match=r"choose one of: deep, deep@\.\.\., net:\.\.\.\."):
        resolve(registry, name, "number")


def test_missing_extra_is_an_import_error():
    assert issubclass(MissingExtraError, ImportError)


# ---- settings --------------------------------------------------------------------------------------------------------


class Oven(Configurable):
    name = "oven"

    def __init__(self, make="small", /, *, degrees=180, racks=(1, 2)):
        self.make, self.degrees, self.racks = make, degrees, racks

    def check_params(self):
        if self.degrees > 300:
            raise InvalidInputError("degrees must be at most 300.")


def test_settings_are_the_keywords_of_the_constructor():
    assert Oven.param_names() == ["degrees", "racks"]
    oven = Oven.from_params({"degrees": np.int64(200), "racks": np.array([3])}, "large")
    assert oven.settings() == {"degrees": 200, "racks": [3]}
    assert type(oven.settings()["degrees"]) is int
    assert oven.make == "large"
    assert repr(Oven()) == "Oven(degrees=180, racks=[1, 2])"


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"speed": 1}, "'oven' has no setting 'speed'; its settings: degrees, racks"),
        ({"degrees": 400}, "degrees must be at most 300"),
        ({"degrees": "hot"}, "'oven': a setting has the wrong type"),
    ],
)
def test_settings_that_make_no_sense(params, message):
    with pytest.raises(InvalidInputError, match=message):
        Oven.from_params(params)


def test_plain_survives_json():
    value = {"a": (np.float32(1.5), np.arange(2)), "b": [None, True, "x"]}
    assert plain(value) == {"a": [1.5, [0, 1]], "b": [None, True, "x"]}
    assert json.loads(json.dumps(plain(value))) == plain(value)


@pytest.mark.parametrize("value", [0, 11, 2.0, "3", None, True, float("nan"), 10**400])
def test_no_whole_number_within_bounds(value):
    check_whole("n", np.int64(3), 1, 10)
    with pytest.raises(InvalidInputError, match=r"^n must be a whole number from 1 to 10; got "):
        check_whole("n", value, 1, 10)


@pytest.mark.parametrize("value", [0, -1.0, "3", None, True, float("nan"), float("inf"), 10**400])
def test_no_positive_number(value):
    check_positive("C", np.float32(0.5))
    with pytest.raises(InvalidInputError, match=r"^C must be a number above 0; got "):
        check_positive("C", value)


@pytest.mark.parametrize("value", ["c", "", None, 3, ["a"]])
def test_no_choice(value):
    check_choice("norm", "a", ("a", "b"))
    with pytest.raises(InvalidInputError, match=r"^norm must be one of a, b; got "):
        check_choice("norm", value, ("a", "b"))

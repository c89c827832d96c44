"""Names to classes."""

from __future__ import annotations

import fractions

import pytest

from lnbnn.classifiers import CLASSIFIERS
from lnbnn.descriptors import DESCRIPTORS
from lnbnn.errors import LnbnnError, MissingExtraError, UnknownNameError
from lnbnn.indexes import INDEXES
from lnbnn.params import resolve

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
    assert (found.method if kind == "method" else found.name) == name.rstrip("@")


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

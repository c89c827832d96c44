"""A classifier from plain options, such as those of the command line; and back to options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lnbnn.classifiers import CLASSIFIERS
from lnbnn.errors import InvalidInputError
from lnbnn.escaping import shell_word
from lnbnn.params import AUTO, preset_params, renamed_params, resolve

if TYPE_CHECKING:
    from lnbnn.classifiers.base import Classifier

__all__ = ["fit_options", "make_classifier"]

_NESTED = ("descriptor_params", "index_params")
_OF_AUTO = {"budget", "max_memory", "n_jobs", "random_state"}


def make_classifier(
    methods: Sequence[str] = (),
    descriptors: Sequence[str] = (),
    *,
    preset: str | None = None,
    params: Mapping[str, Any] | None = None,
) -> Classifier:
    """An unfitted classifier with checked settings; for several methods or descriptors, their late fusion.

    Parameters
    ----------
    methods : sequence of str
        Registered names; by default Local NBNN.
    descriptors : sequence of str
        Registered names; by default the preset's. One method is used with every descriptor, and one descriptor with
        every method; several of both are paired in order.
    preset : str, optional
        The settings to start from. ``"auto"`` chooses methods and settings for ``descriptors`` by itself; its own
        settings are those of :class:`~lnbnn.classifiers.auto.Auto`. The default is ``"auto"`` if no method, descriptor
        or setting is given, and ``"balanced"`` otherwise.
    params : dict, optional
        Settings that differ from the preset's. Each applies to the methods that have it; an unknown one is an error.
        Those in ``descriptor_params`` and ``index_params`` are added to the preset's; ``"2:step_px"`` in
        ``descriptor_params`` applies to the second descriptor only.
    """
    given = dict(params or {})
    if preset is None:
        preset = "balanced" if methods or descriptors or set(given) - _OF_AUTO else AUTO
    if preset == AUTO:
        return _auto(methods, descriptors, given)
    start = preset_params(preset)
    members_of_preset = start.pop("members", [])
    if members_of_preset and (methods or len(descriptors) > 1):
        raise InvalidInputError(f"the preset {preset} is a fusion of its own methods; take another preset")
    methods = methods or [one.pop("method") for one in members_of_preset] or ["local-nbnn"]
    descriptors = descriptors or [start.get("descriptor", "dense-sift")]
    kinds = [resolve(CLASSIFIERS, method, "method") for method in methods]
    known = [kind.param_names() for kind in kinds]
    for kind in kinds:
        given = renamed_params(kind.params_renamed, given)
    for name in sorted(set(given).difference(*known)):
        raise InvalidInputError(f"method {methods[0]!r} has no {name}; its settings: {', '.join(known[0])}")
    if len(descriptors) > 1 < len(methods) != len(descriptors):
        raise InvalidInputError(
            f"{len(methods)} methods for {len(descriptors)} descriptors; give one of either, or equally many"
        )
    n_members = max(len(descriptors), len(methods))
    members: list[Classifier] = []
    for place in range(n_members):
        kind, descriptor = kinds[place % len(kinds)], descriptors[place % len(descriptors)]
        settings = {
            **start,
            **(members_of_preset[place] if members_of_preset else {}),
            **given,
            "descriptor": descriptor,
        }
        for key in _NESTED:
            own = start.get(key, {})
            if key == "descriptor_params" and descriptor != start.get("descriptor", "dense-sift"):
                own = {}  # the preset's are those of its own descriptor
            own = own | _settings_of(key, given.get(key) or {}, place + 1, n_members)
            settings[key] = own or None
        members.append(kind(**{name: value for name, value in settings.items() if name in kind.param_names()}))
    classifier = members[0]
    if n_members > 1:
        from lnbnn.classifiers.fusion import LateFusion

        named = [(f"member{number}", member) for number, member in enumerate(members, start=1)]
        classifier = LateFusion(named, n_jobs=given.get("n_jobs"))
    classifier.check_settings()
    return classifier


def _auto(methods: Sequence[str], descriptors: Sequence[str], given: dict[str, Any]) -> Classifier:
    from lnbnn.classifiers.auto import Auto

    for name in sorted(set(given) - _OF_AUTO):
        raise InvalidInputError(f"the preset {AUTO} chooses {name} by itself; use another preset, such as balanced")
    if methods:
        raise InvalidInputError(f"the preset {AUTO} chooses the method by itself; use another preset, such as balanced")
    classifier = Auto(descriptors=list(descriptors) or None, **given)
    classifier.check_settings()
    return classifier


def _settings_of(key: str, given: Any, number: int, n_members: int) -> dict[str, Any]:
    """The settings of the descriptor with this number: those for all, and those marked ``NUMBER:``."""
    if not isinstance(given, Mapping):
        raise InvalidInputError(f"{key} must be settings by name; got {given!r}")
    result = {}
    for name, value in given.items():
        mark, colon, rest = name.partition(":")
        if not (colon and mark.isdigit()):
            result[name] = value
        elif len(mark) > 9 or not 1 <= int(mark) <= n_members:
            item = f"{name}={value}"
            raise InvalidInputError(f"{item[:60]!r} is for descriptor {mark[:20]}, but there are {n_members}")
        elif int(mark) == number:
            result[rest] = value
    return result


def fit_options(settings: Mapping[str, Any]) -> str:
    """Settings of Local NBNN as options of ``lnbnn fit``."""
    words = []
    for name, value in settings.items():
        if name in _NESTED:
            letter = "-D" if name == "descriptor_params" else "-I"
            for key, part in value.items():
                words.append(f"{letter} {key}={','.join(map(str, part)) if isinstance(part, list) else part}")
        elif name == "descriptor":
            words.append(f"--descriptor {shell_word(value)}")
        else:
            words.append(f"-M {name}={value}")
    return " ".join(words)

"""Whether a record still matches what its command would do today."""

from __future__ import annotations

from lnbnn.lab.base import Experiment
from lnbnn.lab.provenance import part_digest
from lnbnn.lab.records import RunRecord

__all__ = ["differences"]


def differences(record: RunRecord, experiment: Experiment) -> list[str]:
    """What a run of the same command would do differently, one line each; empty if the record is up to date.

    The settings of the record are compared with the experiment's, then what the parts were with the parts that these
    settings make today: all parameters with their defaults, and the versions of descriptors. A list that holds some of
    today's values is a smaller run. A record without a list of parts cannot be compared further.
    """
    found = [words for name in experiment.settings if (words := _difference(name, record, experiment))]
    if record.parts and not found:
        own = {name: record.settings.get(name, value) for name, value in experiment.settings.items()}
        planned = {part_digest(part) for part in experiment.plan(own)}
        made = {digest: title for group in record.parts for digest, title in group["parts"].items()}
        found = [f"{title} had other parameters" for digest, title in made.items() if digest not in planned]
    return found


def _difference(name: str, record: RunRecord, experiment: Experiment) -> str:
    """What is different about a setting, in words; none if it is today's, some of its values, or given by command."""
    option = "--" + name.removeprefix("n_").replace("_", "-")
    if option in record.command.split() or (name.startswith("seed") and name not in record.settings):
        return ""
    if name not in record.settings:
        return f"{name} was not a setting"
    then, today = record.settings[name], experiment.settings[name]
    is_less = isinstance(then, list) and isinstance(today, list) and then and all(value in today for value in then)
    return "" if is_less or then == today else f"{name} was {then!r}"

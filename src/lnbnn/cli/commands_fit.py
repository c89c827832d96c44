"""The command that makes a model, fit, and the one that finds settings for it, tune."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lnbnn.classifiers import CLASSIFIERS
from lnbnn.cli.arguments import DESCRIPTOR_NAMES, Cache, DescriptorParams, Images, Jobs, Strict
from lnbnn.cli.console import (
    Format,
    ProgressBars,
    human_bytes,
    note,
    parse_bytes,
    parse_params,
    print_csv,
    print_json,
    print_table,
    report_skipped,
    say,
    usage_errors,
)
from lnbnn.escaping import shell_word
from lnbnn.indexes import INDEXES
from lnbnn.params import PRESETS, preset_params, resolve

if TYPE_CHECKING:
    from lnbnn.classifiers.base import Classifier
    from lnbnn.reading.store import FeatureStore

__all__ = ["fit", "tune"]

_WORTH_SAYING_BYTES = 100 << 20  # of an index: what a smaller one takes is no news


def fit(
    images: Images,
    model: Annotated[Path, typer.Argument(help="The model folder to make.", show_default=False)],
    preset: Annotated[str, typer.Option(help=f"Start from: {', '.join(PRESETS)}.")] = "balanced",
    method: Annotated[
        list[str] | None,
        typer.Option(help=f"One of: {', '.join(CLASSIFIERS)}. Several are fused.", show_default="local-nbnn"),
    ] = None,
    method_param: Annotated[
        list[str] | None,
        typer.Option("--method-param", "-M", metavar="NAME=VALUE", help="Any setting of the method, e.g. -M levels=2"),
    ] = None,
    neighbors: Annotated[
        int | None, typer.Option("--neighbors", "-k", min=1, help="k of Local NBNN.", show_default=False)
    ] = None,
    location_weight: Annotated[
        float | None,
        typer.Option("--location-weight", "-a", help="alpha: weight of a patch's place, 0 to 2.", show_default=False),
    ] = None,
    query_budget: Annotated[
        str | None,
        typer.Option(help="Query descriptors used: a number, a share such as 0.5, or all.", show_default=False),
    ] = None,
    descriptor: Annotated[
        list[str] | None,
        typer.Option(help=f"One of: {DESCRIPTOR_NAMES}. Several are fused.", show_default=False),
    ] = None,
    descriptor_param: DescriptorParams = None,
    index: Annotated[str | None, typer.Option(help=f"One of: {', '.join(INDEXES)}.", show_default=False)] = None,
    index_param: Annotated[
        list[str] | None, typer.Option("--index-param", "-I", metavar="NAME=VALUE", help="e.g. -I n_probes=4")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of every random choice.")] = 0,
    max_memory: Annotated[
        str | None,
        typer.Option(help="Keep within this much memory, e.g. 2GiB, by a coarser grid if need be.", show_default=False),
    ] = None,
    jobs: Jobs = None,
    cache: Cache = None,
    strict: Strict = False,
    force: Annotated[bool, typer.Option("--force", "-f", help="Replace a model that is there already.")] = False,
) -> None:
    """Make a model from a folder of labelled photos.

    There is nothing to train: the descriptors of all photos go into one nearest-neighbour index. Settings not given
    are the preset's; lnbnn info shows those of a model.

        lnbnn fit photos model

        lnbnn fit photos model --preset fast

        lnbnn fit split/train.csv model -k 10 -D step_px=4

        lnbnn fit photos model --descriptor deep --descriptor dense-sift -D 2:step_px=8

    With several descriptors each has an index of its own, and weights of their answers are learnt from the labelled
    photos, each left out in turn; a -D setting goes to all of them, or with a number to that one. Several methods are
    fused likewise: all on one descriptor, or one a descriptor, in their order.

        lnbnn fit photos model --preset deep --method local-nbnn --method pooled-svm
    """
    from lnbnn.data.folder import read_images
    from lnbnn.model.writer import check_target
    from lnbnn.reading.store import FeatureStore

    check_target(model, overwrite=force)
    given = {
        "n_neighbors": neighbors,
        "location_weight": location_weight,
        "query_budget": _budget(query_budget),
        "index": index,
        "n_jobs": jobs,
    }
    given = {name: value for name, value in given.items() if value is not None}
    given |= parse_params(method_param, "--method-param")  # here none is a value: -M stop_confidence=none
    chosen = set(given)
    if query_budget is not None:
        chosen.add("query_budget")
    chosen |= {
        name for name, items in (("descriptor_params", descriptor_param), ("index_params", index_param)) if items
    }
    names = descriptor or [preset_params(preset).get("descriptor", "dense-sift")]
    methods = method or ["local-nbnn"]
    _check_chosen(methods, chosen)
    if len(names) > 1 < len(methods) != len(names):
        raise typer.BadParameter(f"{len(methods)} methods for {len(names)} descriptors; give one of either, or as many")
    n_members = max(len(names), len(methods))
    members = []
    for number in range(1, n_members + 1):
        name = names[(number - 1) % len(names)]
        params = preset_params(preset)
        if name != params.get("descriptor", "dense-sift"):
            params.pop("descriptor_params", None)  # they are those of the preset's own descriptor
        params |= given
        if query_budget == "all":
            params["query_budget"] = None
        params |= {"descriptor": name, "random_state": seed}
        for key, items, option in (
            ("descriptor_params", _items_of(descriptor_param, number, n_members), "--descriptor-param"),
            ("index_params", index_param, "--index-param"),
        ):
            changed = parse_params(items, option)
            if changed or key in params:
                params[key] = params.get(key, {}) | changed
        members.append(_make_classifier(methods[(number - 1) % len(methods)], params))
    classifier = members[0] if len(members) == 1 else _fused(members, jobs)
    data = read_images(images)
    for text in data.notes:
        note(text)
    store = None if cache is None else FeatureStore(cache)
    classifier = _within_memory(classifier, data.paths, parse_bytes(max_memory, "--max-memory"), store)
    with ProgressBars() as progress:
        classifier.fit(
            data.paths,
            data.labels,
            on_error="raise" if strict else "skip",
            store=store,
            progress=progress,
        )
        progress("writing the model", 0, 1)
        classifier.save(model, overwrite=force)
        progress("writing the model", 1, 1)
    report_skipped(classifier.skipped_, len(data))
    n_descriptors = sum(image.n_descriptors for image in classifier.images_)
    say(
        f"{model}: {len(classifier.classes_)} classes, {len(classifier.images_)} images, "
        f"{n_descriptors:,} descriptors; {classifier.describe()}"
    )


def tune(
    images: Images,
    descriptor: Annotated[
        str, typer.Option(help="Dense SIFT or a network; deep stands for its layers too.")
    ] = "dense-sift",
    max_ms: Annotated[
        float | None,
        typer.Option(min=0.0, help="CPU milliseconds an image may take, file to answer.", show_default=False),
    ] = None,
    max_memory: Annotated[
        str | None, typer.Option(help="Memory a fit may take, e.g. 2GiB.", show_default=False)
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Another seed, other images held out.")] = 0,
    format: Annotated[Format, typer.Option(help="How to print the trials.")] = Format.table,
    jobs: Jobs = None,
    cache: Cache = None,
) -> None:
    """Find settings for your own photos: accuracy on photos held out, within a budget of time or memory.

    A third of the photos is held out and the rest is the model, for several grids, weights of a patch's place and
    ways to search. The last line is the command that makes the model with the best of them.

        lnbnn tune photos --max-ms 20 --max-memory 1GiB

        lnbnn tune photos --descriptor deep
    """
    from lnbnn.data.folder import read_images
    from lnbnn.lab.tuning import Trial, best_of
    from lnbnn.lab.tuning import tune as try_settings
    from lnbnn.reading.store import FeatureStore

    data = read_images(images)
    for text in data.notes:
        note(text)
    limit = parse_bytes(max_memory, "--max-memory")
    store = None if cache is None else FeatureStore(cache)
    trials: list[Trial] = []
    with ProgressBars() as progress:
        for trial in try_settings(
            data,
            descriptor=descriptor,
            max_ms=max_ms,
            max_memory=limit,
            seed=seed,
            n_jobs=jobs,
            store=store,
            progress=progress,
        ):
            trials.append(trial)
            if format is Format.json:
                print_json(dataclasses.asdict(trial) | {"options": _options(trial.settings)})
    best = best_of(trials, max_ms=max_ms)
    if format is Format.table:
        rows = [
            (f"{100 * t.accuracy:.1f} %", f"{t.ms_an_image:.1f}", human_bytes(t.memory_bytes), _options(t.settings))
            for t in sorted(trials, key=lambda trial: -trial.accuracy)
        ]
        print_table(["accuracy", "CPU ms an image", "memory to fit", "options"], rows)
    elif format is Format.csv:
        values = ([t.accuracy, t.ms_an_image, t.memory_bytes, _options(t.settings)] for t in trials)
        print_csv([["accuracy", "ms_an_image", "memory_bytes", "options"], *values])
    if max_ms is not None and best.ms_an_image > max_ms:
        note(f"no settings answer within {max_ms:g} ms; these are the quickest:")
    note(f"lnbnn fit {shell_word(images)} MODEL {_options(best.settings)}")


def _options(settings: dict[str, Any]) -> str:
    """Settings of Local NBNN as options of ``lnbnn fit``."""
    words = []
    for name, value in settings.items():
        if name in ("descriptor_params", "index_params"):
            letter = "-D" if name == "descriptor_params" else "-I"
            for key, part in value.items():
                words.append(f"{letter} {key}={','.join(map(str, part)) if isinstance(part, list) else part}")
        elif name == "descriptor":
            words.append(f"--descriptor {shell_word(value)}")
        else:
            words.append(f"-M {name}={value}")
    return " ".join(words)


def _check_chosen(methods: list[str], chosen: set[str]) -> None:
    """Refuse a setting that was given but that none of the methods has."""
    known = [resolve(CLASSIFIERS, method, "method").param_names() for method in methods]
    for name in sorted(chosen - {name for names in known for name in names}):
        raise typer.BadParameter(f"method {methods[0]!r} has no {name}; its settings: {', '.join(known[0])}")


def _make_classifier(method: str, params: dict[str, Any]) -> Classifier:
    """The classifier with those of these settings that it has."""
    kind = resolve(CLASSIFIERS, method, "method")
    names = kind.param_names()
    classifier = kind(**{name: value for name, value in params.items() if name in names})
    with usage_errors():
        classifier.check_settings()
    return classifier


def _within_memory(
    classifier: Classifier, paths: Sequence[str], max_memory: int | None, store: FeatureStore | None
) -> Classifier:
    """Say what the fit will take, if it is much or a limit was given; make the grid coarser where the limit asks."""
    from lnbnn.model.planning import plan_fit

    plan = plan_fit(classifier, paths, max_memory=max_memory, store=store)
    if plan is None:
        if max_memory is not None:
            raise typer.BadParameter(f"method {classifier.method!r} has no index to keep within --max-memory")
        return classifier
    if plan.index_bytes >= _WORTH_SAYING_BYTES or max_memory is not None:
        note(
            f"about {plan.n_descriptors:,} descriptors of {plan.n_images:,} images: up to "
            f"{human_bytes(plan.memory_bytes)} of memory while fitting, {human_bytes(plan.index_bytes)} on disk"
        )
    if plan.step_px is not None:
        note(f"descriptors are taken every {plan.step_px} pixels, to stay within {human_bytes(max_memory or 0)}")
        params = {**(classifier.descriptor_params or {}), "step_px": plan.step_px}
        classifier.set_params(descriptor_params=params)
    return classifier


def _items_of(items: list[str] | None, number: int, n_descriptors: int) -> list[str]:
    """The settings that go to the descriptor of this number: those for all, and those marked ``NUMBER:``."""
    result = []
    for item in items or []:
        mark, colon, rest = item.partition(":")
        if not (colon and mark.isdigit()):
            result.append(item)
        elif len(mark) > 9 or not 1 <= int(mark) <= n_descriptors:
            raise typer.BadParameter(f"{item[:60]!r} is for descriptor {mark[:20]}, but there are {n_descriptors}")
        elif int(mark) == number:
            result.append(rest)
    return result


def _fused(members: list[Classifier], jobs: int | None) -> Classifier:
    parts = [(f"part{number}", member) for number, member in enumerate(members, start=1)]
    fusion: Classifier = resolve({"fusion": "lnbnn.classifiers.fusion:LateFusion"}, "fusion", "method")(
        parts, n_jobs=jobs
    )
    with usage_errors():
        fusion.check_settings()
    return fusion


def _budget(text: str | None) -> int | float | None:
    if text is None or text == "all":
        return None
    try:
        return float(text) if "." in text else int(text)
    except ValueError:
        raise typer.BadParameter(f"expected a number, a share such as 0.5, or all; got {text!r}") from None

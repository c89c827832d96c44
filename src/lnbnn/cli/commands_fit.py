"""The commands that make a model: fit, and tune, which finds settings for it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lnbnn.classifiers import CLASSIFIERS
from lnbnn.cli.console import (
    DESCRIPTOR_NAMES,
    Cache,
    DescriptorParams,
    Force,
    Format,
    Images,
    Jobs,
    Ray,
    Strict,
    human_bytes,
    jobs_on,
    note,
    open_cache,
    parse_bytes,
    parse_params,
    print_choice,
    print_csv,
    print_json,
    print_table,
    progress_bars,
    read_set,
    report_skipped,
    say,
    usage_errors,
)
from lnbnn.escaping import shell_word
from lnbnn.indexes import INDEXES
from lnbnn.params import AUTO, PRESETS

if TYPE_CHECKING:
    from lnbnn.classifiers.base import Classifier
    from lnbnn.reading.extraction import ImageLike
    from lnbnn.reading.store import FeatureStore

__all__ = ["fit", "tune"]

_WORTH_SAYING_BYTES = 100 << 20  # of an index; a smaller one is not worth a note


def fit(
    images: Images,
    model: Annotated[Path, typer.Argument(help="The model folder to create.", show_default=False)],
    preset: Annotated[
        str | None,
        typer.Option(
            help=f"Start from: {AUTO}, {', '.join(PRESETS)}.", show_default=f"{AUTO}, or balanced with other options"
        ),
    ] = None,
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
        typer.Option(
            "--location-weight", "-a", help="alpha: weight of a patch's location, 0 to 2.", show_default=False
        ),
    ] = None,
    query_budget: Annotated[
        str | None,
        typer.Option(help="Query descriptors to use: a number, a fraction such as 0.5, or all.", show_default=False),
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
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 0,
    max_memory: Annotated[
        str | None,
        typer.Option(help="Memory limit, e.g. 2GiB; the grid is made coarser if necessary.", show_default=False),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(min=1.0, help="About how many seconds the trials of auto may take.", show_default="30"),
    ] = None,
    jobs: Jobs = None,
    ray: Ray = None,
    cache: Cache = None,
    strict: Strict = False,
    force: Force = False,
) -> None:
    """Make a model from a folder of labeled photos.

    Without options it tries several descriptors, methods and settings, each photo left out in turn, fuses those that
    help, and says what accuracy to expect. Presets and other options choose for you: --preset balanced is Local NBNN on
    dense SIFT. lnbnn info shows what a model consists of.

        lnbnn fit photos model

        lnbnn fit photos model --preset fast

        lnbnn fit split/train.csv model -k 10 -D step_px=4

        lnbnn fit photos model --descriptor deep --descriptor dense-sift -D 2:step_px=8

    With several descriptors, each has its own index, and their weights are learned from the labeled photos, each left
    out in turn. A -D setting applies to all of them, or with a number to one. Several methods are fused in the same
    way: all on one descriptor, or one per descriptor, in order.

        lnbnn fit photos model --preset deep --method local-nbnn --method pooled-svm
    """
    from lnbnn.classifiers.options import make_classifier
    from lnbnn.model.writer import check_images, check_target

    check_target(model, overwrite=force)
    limit = parse_bytes(max_memory, "--max-memory")
    given = {
        "n_neighbors": neighbors,
        "location_weight": location_weight,
        "index": index,
        "n_jobs": jobs_on(ray, jobs),
        "budget": budget,
        "descriptor_params": parse_params(descriptor_param, "--descriptor-param") or None,
        "index_params": parse_params(index_param, "--index-param") or None,
    }
    params: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if query_budget is not None:
        params["query_budget"] = _budget(query_budget)
    params |= parse_params(method_param, "--method-param")  # here none is a value: -M stop_confidence=none
    with usage_errors():
        classifier = make_classifier(
            method or [], descriptor or [], preset=preset, params=params | {"random_state": seed}
        )
    data = read_set(images)
    check_images(model, data.paths)
    store = open_cache(cache)
    if classifier.method == AUTO:
        classifier.set_params(max_memory=limit)
        planned: Sequence[ImageLike] = data.paths
    else:
        planned = _plan(classifier, data.paths, limit, store)
    with progress_bars() as progress:
        classifier.fit(planned, data.labels, on_error="raise" if strict else "skip", store=store, progress=progress)
        progress("writing the model", 0, 1)
        classifier.save(model, overwrite=force)
        progress("writing the model", 1, 1)
    report_skipped(classifier.skipped_, len(data))
    choice = classifier.fitted().choice
    if choice is not None:
        print_choice(choice)
    references = classifier.fitted().references
    say(
        f"{model}: {len(references.classes)} classes, {len(references)} images, "
        f"{references.n_descriptors:,} descriptors; {classifier.describe()}"
    )


def _budget(text: str) -> int | float | None:
    if text == "all":
        return None
    try:
        return float(text) if "." in text else int(text)
    except ValueError:
        raise typer.BadParameter(f"expected a number, a fraction such as 0.5, or all; got {text!r}") from None


def _plan(
    classifier: Classifier, paths: Sequence[str], max_memory: int | None, store: FeatureStore | None
) -> Sequence[ImageLike]:
    """Report the memory of the fit if it is large or limited; make the grid coarser to stay within the limit."""
    from lnbnn.model.planning import plan_fit

    plan = plan_fit(classifier, paths, max_memory=max_memory, store=store)
    if plan is None:
        if max_memory is not None:
            raise typer.BadParameter(f"method {classifier.method!r} has no index to keep within --max-memory")
        return paths
    if plan.index_bytes >= _WORTH_SAYING_BYTES or max_memory is not None:
        note(
            f"about {plan.n_descriptors:,} descriptors of {plan.n_images:,} images: up to "
            f"{human_bytes(plan.memory_bytes)} of memory while fitting, {human_bytes(plan.index_bytes)} on disk"
        )
    if plan.step_px is not None:
        note(f"descriptors are taken every {plan.step_px} pixels, to stay within {human_bytes(max_memory or 0)}")
        classifier.set_params(descriptor_params={**(classifier.descriptor_params or {}), "step_px": plan.step_px})
    return plan.images


def tune(
    images: Images,
    descriptor: Annotated[
        str, typer.Option(help="Dense SIFT or a network; deep also tries its layers.")
    ] = "dense-sift",
    max_ms: Annotated[
        float | None,
        typer.Option(min=0.0, help="Limit of CPU milliseconds per image, from file to answer.", show_default=False),
    ] = None,
    max_memory: Annotated[
        str | None, typer.Option(help="Memory limit of a fit, e.g. 2GiB.", show_default=False)
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the held-out images.")] = 0,
    format: Annotated[Format, typer.Option(help="How to print the trials.")] = Format.table,
    jobs: Jobs = None,
    cache: Cache = None,
) -> None:
    """Find settings for your own photos, within a budget of time or memory.

    A third of the photos is held out to measure accuracy, for several grids, location weights and search settings. The
    last line is the command that makes a model with the best settings.

        lnbnn tune photos --max-ms 20 --max-memory 1GiB

        lnbnn tune photos --descriptor deep
    """
    from lnbnn.lab.tuning import Trial, best_of
    from lnbnn.lab.tuning import tune as try_settings

    data = read_set(images)
    chosen: dict[str, Any] = {"descriptor": descriptor, "max_ms": max_ms, "seed": seed, "n_jobs": jobs}
    chosen |= {"max_memory": parse_bytes(max_memory, "--max-memory"), "store": open_cache(cache)}
    trials: list[Trial] = []
    with progress_bars() as progress:
        for trial in try_settings(data, **chosen, progress=progress):
            trials.append(trial)
            if format is Format.json:
                print_json(trial.as_json())
    best = best_of(trials, max_ms=max_ms)
    if format is Format.table:
        rows = [
            (f"{100 * t.accuracy:.1f} %", f"{t.ms_per_image:.1f}", human_bytes(t.memory_bytes), t.options)
            for t in sorted(trials, key=lambda trial: -trial.accuracy)
        ]
        print_table(["accuracy", "CPU ms per image", "memory to fit", "options"], rows)
    elif format is Format.csv:
        names = ["accuracy", "ms_per_image", "memory_bytes", "options"]
        print_csv([names, *([getattr(trial, name) for name in names] for trial in trials)])
    if max_ms is not None and best.ms_per_image > max_ms:
        note(f"no settings are within {max_ms:g} ms per image; these are the fastest:")
    note(f"lnbnn fit {shell_word(images)} MODEL {best.options}")

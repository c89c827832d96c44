"""Commands around models: data, extract, split, demo, export-onnx."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from lnbnn.cli.console import (
    DescriptorParams,
    Images,
    Jobs,
    Ray,
    Strict,
    jobs_on,
    note,
    parse_params,
    progress_bars,
    read_set,
    report_skipped,
    say,
    usage_errors,
)

__all__ = ["data", "demo", "export_onnx", "extract", "split"]


def data(
    name: Annotated[str, typer.Argument(help="caltech101 or caltech256.", show_default=False)],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder to put it into.", show_default=False)],
) -> None:
    """Download a published data set, verify it and unpack it.

    An interrupted download resumes; a data set that is there already is only verified. Without a network, put the
    publisher's archive into DIR yourself.

    lnbnn data caltech101 data

    lnbnn split data/caltech101.csv split --train 15 --test 15
    """
    from lnbnn.data import DATASETS
    from lnbnn.data.fetch import fetch_set
    from lnbnn.files.outputs import check_folder
    from lnbnn.params import resolve

    check_folder(folder)
    kind = resolve(DATASETS, name, "set of images")
    with progress_bars() as progress:
        images = fetch_set(kind, folder, progress)
    for text in images.notes:
        note(text)
    say(f"{folder / kind.folder}: {len(set(images.labels))} classes, {len(images):,} images")
    say(f"{folder / kind.name}.csv: the list of them, without {kind.background}")


def extract(
    images: Images,
    cache: Annotated[Path, typer.Argument(help="The feature cache folder to fill.", show_default=False)],
    descriptor: Annotated[str, typer.Option(help="Local descriptor.")] = "dense-sift",
    descriptor_param: DescriptorParams = None,
    jobs: Jobs = None,
    ray: Ray = None,
    strict: Strict = False,
) -> None:
    """Extract the features of a data set into a cache, for experiments that use them many times.

    Entries are keyed by the image's content and all settings; an interrupted run resumes.
    """
    from lnbnn.descriptors import make_descriptor
    from lnbnn.errors import ImageReadError
    from lnbnn.files.outputs import check_folder
    from lnbnn.reading.extraction import iter_stored
    from lnbnn.reading.store import FeatureStore

    with usage_errors():
        extractor = make_descriptor(descriptor, parse_params(descriptor_param, "--descriptor-param"))
    check_folder(cache)
    n_jobs = jobs_on(ray, jobs)
    data = read_set(images)
    skipped = []
    n_descriptors = 0
    start = time.perf_counter()
    with progress_bars() as progress:
        found = iter_stored(data.paths, extractor, FeatureStore(cache), n_jobs=n_jobs)
        for done, counted in enumerate(found, start=1):
            if isinstance(counted, ImageReadError):
                if strict:
                    raise counted
                skipped.append((data.paths[done - 1], str(counted)))
            else:
                n_descriptors += counted
            progress("extracting", done, len(data))
    report_skipped(skipped, len(data))
    say(
        f"{cache}: {len(data) - len(skipped)} images, {n_descriptors:,} descriptors, "
        f"{time.perf_counter() - start:.1f} s"
    )
    if len(skipped) == len(data):
        raise typer.Exit(1)


def split(
    images: Images,
    output: Annotated[Path, typer.Argument(help="Folder for train.csv and test.csv.", show_default=False)],
    train: Annotated[int, typer.Option(min=1, help="Training images per class.")] = 15,
    test: Annotated[
        int | None, typer.Option(min=1, help="Test images per class, at most; default: all others.", show_default=False)
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the split.")] = 0,
) -> None:
    """Split a data set at random into a training list and a test list.

    lnbnn split photos split --train 15 --test 15 --seed 0

    lnbnn fit split/train.csv model

    lnbnn evaluate model split/test.csv
    """
    from lnbnn.data.folder import write_list
    from lnbnn.data.splits import split_images
    from lnbnn.files.outputs import check_folder

    check_folder(output)
    data = read_set(images)
    parts = split_images(data, n_train=train, n_test=test, seed=seed)
    output.mkdir(parents=True, exist_ok=True)
    for name, part in zip(("train.csv", "test.csv"), parts, strict=True):
        write_list(output / name, part)
    say(f"{output}: train.csv {len(parts[0])} images, test.csv {len(parts[1])} images")


def demo(
    data: Annotated[
        Path | None,
        typer.Option(help="Your own folder <class>/*.jpg instead of the built-in photographs.", show_default=False),
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the pictures.")] = Path("demo-output"),
    descriptor: Annotated[str, typer.Option(help="Local descriptor, for example deep.")] = "dense-sift",
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 0,
) -> None:
    """Run everything once on a small built-in data set, or on halves of your own folder.

    Fits, evaluates, prints accuracy and time, and writes pictures: the confusion matrix and, for a few query images,
    the patches behind the answer.
    """
    from lnbnn.files.outputs import check_folder
    from lnbnn.lab.demo import run_demo

    check_folder(output)
    with progress_bars() as progress:
        report = run_demo(output, data=data, descriptor=descriptor, seed=seed, progress=progress)
    for text in report.notes:
        note(text)
    result = report.evaluation
    say(
        f"reference: {report.n_reference} images of {len(result.answers) - 1} classes, "
        f"{report.n_descriptors:,} descriptors, fitted in {report.fit_s:.1f} s"
    )
    say(f"index: {report.index}")
    say(
        f"query: {result.n_images} images in {result.seconds:.1f} s "
        f"({1000 * result.seconds / result.n_images:.0f} ms per image)"
    )
    say(f"mean per-class accuracy: {100 * result.mean_per_class_accuracy:.1f} %")
    for path in report.pictures:
        say(f"picture: {path}")


def export_onnx(
    descriptor: Annotated[str, typer.Argument(help="timm:MODEL[@LAYER], or deep[@LAYER].", show_default=False)],
    output: Annotated[Path, typer.Argument(help="The network file to write (.onnx).", show_default=False)],
    descriptor_param: DescriptorParams = None,
    force: Annotated[bool, typer.Option("--force", "-f", help="Overwrite an existing file.")] = False,
) -> None:
    """Write a network as one ONNX file that runs without PyTorch.

    The file contains its preprocessing settings, so it can be used directly:

        lnbnn export-onnx timm:resnet50 resnet50.onnx

        lnbnn fit photos model --descriptor onnx:resnet50.onnx
    """
    from lnbnn.descriptors import make_descriptor
    from lnbnn.files.atomic import atomic_path
    from lnbnn.files.outputs import check_file

    if output.exists() and not force:
        raise typer.BadParameter(f"{output} exists already; choose another name, or overwrite it (--force)")
    check_file(output)
    network = make_descriptor(descriptor, parse_params(descriptor_param, "--descriptor-param"))
    data, difference = network.onnx_file()
    with atomic_path(output) as partial:
        partial.write_bytes(data)
    say(f"{output}: {len(data) / 2**20:.1f} MiB, features differ by at most {difference:.1g} (relative)")

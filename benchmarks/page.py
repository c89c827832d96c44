"""The page: how soon it answers, how much it bears, how a large gallery scrolls, what kills and cuts leave.

The server is the real command, the browser a Chromium that is installed. Photos are of Caltech 101.
"""

import http.client
import json
import multiprocessing
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from common import HERE, benchmark, parts_over, values_of

import lnbnn
from lnbnn.lab import Lab, Outcome, Outcomes, Part, Results, Settings
from lnbnn.lab.base import markdown_table
from lnbnn.model.changes import calibrate

sys.path.insert(0, str(HERE / "tests"))

ASKED: Settings = {"n_train": 15, "n_test": 2, "n_classes": 101, "seed": 0, "repeats": 9, "n_questions": 10_000}
ASKED |= {"n_clients": 64, "models": {"sift": {"preset": "balanced"}, "deep": {"preset": "deep"}}}
GALLERY: Settings = {"n_photos": 10_000, "n_scrolls": 200}
SOAK: Settings = {"n_kills": 500, "n_cuts": 500, "n_requests": 10_000}
SETTINGS: Settings = {**ASKED, **GALLERY, **SOAK}
QUICK: Settings = {"n_train": 3, "n_classes": 3, "repeats": 2, "n_questions": 100, "n_clients": 8, "n_photos": 300}
QUICK |= {"n_scrolls": 20, "n_kills": 3, "n_cuts": 6, "n_requests": 100}


def plan(settings: Settings) -> list[Part]:
    """The questions, the gallery, the kills: each can be made by itself and is kept."""
    asking = parts_over("page", ask, timed=True, models="model")({key: settings[key] for key in ASKED})
    gallery = parts_over("page gallery", scroll, timed=True)({key: settings[key] for key in GALLERY})
    return asking + gallery + parts_over("page soak", soak)({key: settings[key] for key in SOAK})


# ---- asking ----------------------------------------------------------------------------------------------------------


def ask(lab: Lab, settings: Settings) -> Outcome:
    """A model served by the command: its start, a photo dropped in the browser, and many clients at once."""
    from paging import Server

    train, test = lab.split_of(settings, sorted(set(lab.data.labels))[: settings["n_classes"]])
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model"
        lab.fit("local-nbnn", settings["params"], train, keep_features=False).save(model)
        calibrate(model)
        photos = [Path(path).read_bytes() for path in test.paths]
        starts = [start(model, photos[0]) for _ in range(settings["repeats"])]
        in_python = rate_in_python(model, test.paths, settings["n_questions"] // 10)
        with Server(model) as server:
            answers, evidence = drop_in_browser(server.address, photos[: settings["repeats"] + 1])
            loaded = load(server, photos, settings)
    return {
        "start_s": round(statistics.median(starts), 2),
        "answer_ms": round(statistics.median(answers)),
        "evidence_ms_more": round(statistics.median(evidence)),
        "answers_per_s_in_python": round(in_python, 1),
        **loaded,
        "share_of_python": round(loaded["answers_per_s"] / in_python, 2),
    }


def start(model: Path, photo: bytes) -> float:
    """Seconds from the command to its first answer."""
    from paging import Server

    began = time.perf_counter()
    with Server(model) as server:
        status, answer = server.ask("/api/predict", photo, **{"Content-Type": "image/jpeg"})
        assert status == 200, answer
        return time.perf_counter() - began


def rate_in_python(model: Path, paths: tuple[str, ...], n: int) -> float:
    """Answers per second of the same model in Python, on all cores."""
    classifier = lnbnn.load(model)
    asked = [paths[number % len(paths)] for number in range(n)]
    list(classifier.iter_answers(asked[:20]))
    began = time.perf_counter()
    for _ in classifier.iter_answers(asked):
        pass
    return n / (time.perf_counter() - began)


DROP = """([name, bytes]) => new Promise((resolve, reject) => {
    const transfer = new DataTransfer();
    transfer.items.add(new File([new Uint8Array(bytes)], name, {type: "image/jpeg"}));
    const began = performance.now();
    let answered = null;
    const look = () => {
        const isShown = document.querySelector(".photo figcaption")?.textContent === name;
        if (answered === null && isShown && document.querySelector(".headline h2")) answered = performance.now();
        const words = document.querySelector(".legend span")?.textContent;
        if (answered !== null && isShown && words && document.querySelector(".evidence-photo"))
            resolve([answered - began, performance.now() - answered]);
        else if (performance.now() - began > 60000) reject(new Error("no answer"));
        else requestAnimationFrame(look);
    };
    document.querySelector(".drop").dispatchEvent(new DragEvent("drop", {dataTransfer: transfer, cancelable: true}));
    look();
})"""


@contextmanager
def browser_page(address: str) -> Any:
    """A page in a real browser."""
    from paging import find_browser
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_browser(), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(address)
        page.wait_for_selector("h1")
        yield page
        browser.close()


def drop_in_browser(address: str, photos: list[bytes]) -> tuple[list[float], list[float]]:
    """Milliseconds from a drop to its answer on the screen, and from there to its evidence; the first is left out."""
    with browser_page(address) as page:
        page.evaluate("location.hash = '#ask'")
        page.wait_for_selector(".drop")
        found = [page.evaluate(DROP, [f"{n}.jpg", list(photo)]) for n, photo in enumerate(photos)][1:]
    return [answer for answer, _ in found], [more for _, more in found]


def load(server: Any, photos: list[bytes], settings: Settings) -> dict[str, Any]:
    """Many clients at once: errors, speed, the spread of waiting, and the server's memory on the way."""
    n, n_clients = settings["n_questions"], settings["n_clients"]
    port, sizes = int(server.base.rpartition(":")[2]), []
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        pool.submit(question, port, server.secret, photos[:20], n_clients, n_clients).result()
        for share in (0.1, 0.9):
            waits, n_errors, seconds = pool.submit(
                question, port, server.secret, photos, n_clients, int(share * n)
            ).result()
            sizes.append(resident_mib(server.process.pid))
    return {
        "n_questions": len(waits),
        "n_errors": n_errors,
        "answers_per_s": round(len(waits) / seconds, 1),
        "wait_ms_median": round(1000 * statistics.median(waits)),
        "wait_ms_p99": round(1000 * float(np.quantile(waits, 0.99))),
        "mib_after_a_tenth": sizes[0],
        "mib_after_all": sizes[1],
    }


def question(port: int, secret: str, photos: list[bytes], n_clients: int, n: int) -> tuple[list[float], int, float]:
    """Clients that ask one question after the other: how long each waited, errors, seconds of all."""
    waits: list[float] = []
    errors: list[object] = []
    numbers = iter(range(n))

    def client() -> None:
        line = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        headers = {"Authorization": f"Bearer {secret}", "Content-Type": "image/jpeg"}
        for number in numbers:
            began = time.perf_counter()
            line.request("POST", "/api/predict", photos[number % len(photos)], headers)
            reply = line.getresponse()
            content = reply.read()
            waits.append(time.perf_counter() - began)
            if reply.status != 200:
                errors.append(content)

    began = time.perf_counter()
    threads = [threading.Thread(target=client) for _ in range(n_clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return waits, len(errors), time.perf_counter() - began


def resident_mib(pid: int) -> int:
    """Memory of a process that is in use."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) >> 10


# ---- the gallery -----------------------------------------------------------------------------------------------------


def scroll(lab: Lab, settings: Settings) -> Outcome:
    """A gallery of many photos: from the visit to the first of them, and the longest task while it is scrolled."""
    from paging import KINDS, Server, picture

    grid = {"bin_sizes": [4], "step_px": 24, "longest_side": 96}
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for number in range(settings["n_photos"]):
            files.append(Path(folder) / f"{number}.jpg")
            files[-1].write_bytes(picture(KINDS[number % 3], number, (160, 120), format="JPEG"))
        labels = [f"class {number % 50}" for number in range(len(files))]
        classifier = lnbnn.LocalNBNN(n_neighbors=3, descriptor_params=grid).fit(files, labels)
        classifier.save(Path(folder) / "model")
        calibrate(Path(folder) / "model")
        with Server(Path(folder) / "model") as server, browser_page(server.address) as page:
            page.goto(f"{server.base}/api")  # so that the visit is of the whole page
            page.goto(f"{server.base}/#photos")
            opened = page.evaluate(
                """() => new Promise((resolve) => {
                    const look = () => document.querySelector(".tile img")?.complete
                        ? resolve(performance.now()) : requestAnimationFrame(look);
                    look();
                })"""
            )
            tasks = page.evaluate(
                """(n) => new Promise((resolve) => {
                    const found = [0];
                    new PerformanceObserver((list) => found.push(...list.getEntries().map((one) => one.duration)))
                        .observe({type: "longtask"});
                    let done = 0;
                    const step = () => {
                        window.scrollBy(0, done % 10 === 9 ? 6000 : 400);
                        done += 1;
                        if (done < n) requestAnimationFrame(step);
                        else setTimeout(() => resolve(found), 500);
                    };
                    step();
                })""",
                settings["n_scrolls"],
            )
            n_tiles = page.locator(".tile").count()
    return {"open_s": round(opened / 1000, 2), "longest_task_ms": round(max(tasks)), "n_tiles_at_a_time": n_tiles}


# ---- kills and cuts --------------------------------------------------------------------------------------------------


def soak(lab: Lab, settings: Settings) -> Outcome:
    """Kills, cuts and mutated requests; one loss ends the run without a record."""
    counts = [f"--{name}" for name in ("kills", "cuts", "requests")]
    words = [word for name in counts for word in (name, str(settings[f"n_{name[2:]}"]))]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(HERE / "tests" / "page_soak.py"), f"{folder}/soak", *words]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"page_soak.py: {done.stderr[-4000:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def summarize(settings: Settings, outcomes: Outcomes) -> Results:
    asked = {part.settings["model"]: values_of(found) for part, found in outcomes if "model" in part.settings}
    others = {
        part.kind.removeprefix("page "): values_of(found) for part, found in outcomes if "model" not in part.settings
    }
    return {"asked": asked, **others}


def tabulate(results: Results) -> str:
    """Each figure beside what was asked for."""
    asked = results.get("asked", {})
    rows = []

    def row(what: str, wanted: str, show: Any) -> None:
        rows.append([what, wanted, *(show(found) for found in asked.values())])

    row("from the command to an answer", "2 s", lambda one: f"{one['start_s']:.1f} s")
    row("a dropped photo, to its answer on the screen", "150 ms", lambda one: f"{one['answer_ms']} ms")
    row("... to its evidence, more", "500 ms", lambda one: f"{one['evidence_ms_more']} ms")
    row(
        "answers per second, share of Python's",
        "80 %",
        lambda one: f"{one['answers_per_s']:.0f}, {100 * one['share_of_python']:.0f} %",
    )
    row("errors of 64 clients at once", "0", lambda one: f"{one['n_errors']} of {one['n_questions']:,}")
    row("waiting, p99 over median", "3", lambda one: f"{one['wait_ms_p99'] / one['wait_ms_median']:.1f}")
    row(
        "memory after a tenth of the questions, after all",
        "flat",
        lambda one: f"{one['mib_after_a_tenth']}, {one['mib_after_all']} MiB",
    )
    text = markdown_table(["what", "asked for", *asked], rows) if asked else ""
    if "gallery" in results:
        found = results["gallery"]
        text += f"\nA gallery of 10,000 photos opens in {found['open_s']:.1f} s (asked for: 1 s). "
        longest = found["longest_task_ms"]  # a browser reports those of 50 ms and more
        slowest = f"the longest task takes {longest} ms" if longest else "no task takes 50 ms"
        text += f"While it is scrolled {slowest} (asked for: 100 ms at most).\n"
    if "soak" in results:
        found = results["soak"]
        ended, cut, sent = found["kills"], found["cuts"]["cuts"], found["requests"]["requests"]
        text += f"\nThe server was ended {ended['kills']:,} times in the course of {ended['changes']:,} changes, "
        text += f"{cut:,} uploads were cut, {sent:,} mutated requests sent. Lost: 0. Half taught: 0. Crashed: 0.\n"
    return text


EXPERIMENT = benchmark(globals(), plan=plan)

"""Does --reject keep its promise? Classes that a model does not know against the rate that was asked for.

Models of few and of many classes, 15 training images each, are calibrated on these alone. They are asked for test
images of their classes, and for test images of 40 classes that they have never seen; another seed is another choice of
classes. Caltech 101 has no 40 classes left beside 101, so those models are of Caltech 256. Draws
docs/images/unknown.png.
"""

from typing import Any

import numpy as np
from common import benchmark, parts_over, table, values_of

from lnbnn.lab import Lab, Outcome, Outcomes, Part, Results, Settings, of_classes
from lnbnn.lab.axes import BLUE, RED, new_plot
from lnbnn.lab.reproduce import find_images

SIZES: Settings = {f"{n}": {"n_known": n, "dataset": "caltech101"} for n in (5, 10, 20, 50)}
SIZES |= {"101": {"n_known": 101, "dataset": "caltech256"}}
SETTINGS: Settings = {"presets": ["auto", "balanced", "deep"], "sizes": SIZES, "seeds": list(range(16))}
SETTINGS |= {"n_train": 15, "n_test": 6, "n_unknown": 40, "split": 0}
SETTINGS |= {"rates": [0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5]}
QUICK: Settings = {"presets": ["balanced"], "seeds": [0], "n_train": 4, "n_test": 3}
QUICK |= {"sizes": {"3": {"n_known": 3, "dataset": "caltech101"}}}
N_MODELS = {5: 16, 10: 8, 20: 4, 50: 3}
SHOWN = (0.01, 0.05, 0.1)


def compute(lab: Lab, settings: Settings) -> Outcome:
    """Shares of unknown images accepted, of known ones accepted, and of known ones accepted with the right answer."""
    if not lab.dataset.startswith(settings["dataset"]):
        images = find_images(settings["dataset"], None, lab.runs)
        lab = Lab(settings["dataset"], images, lab.runs, progress=lab.progress)
    n_known, store = settings["n_known"], lab.store_for(settings["params"])
    order = lab.shuffled_classes(settings["seed"])
    known = set(order[:n_known])
    train, test = lab.split_of({**settings, "seed": settings["split"]}, order[: n_known + settings["n_unknown"]])
    model = lab.fit_preset(settings, of_classes(train, known))
    model.calibrate(unknown=True, progress=lab.progress)
    found: dict[bool, list[tuple[float, bool]]] = {True: [], False: []}
    for label, answer in zip(test.labels, model.iter_answers(test.paths, store=store), strict=True):
        rate = 1.0 if answer.false_accept_rate is None else answer.false_accept_rate
        found[label in known].append((rate, bool(answer.ranking) and answer.ranking[0][0] == label))
    rates_known, right = map(np.array, zip(*found[True], strict=True))
    rates_unknown = np.array([rate for rate, _ in found[False]])
    asked = np.array(settings["rates"])[:, None]
    return {
        "n_known_images": len(rates_known),
        "n_unknown_images": len(rates_unknown),
        "accuracy": round(float(right.mean()), 4),
        "false_accepts": (rates_unknown <= asked).mean(axis=1).round(4).tolist(),
        "known_accepted": (rates_known <= asked).mean(axis=1).round(4).tolist(),
        "known_right": ((rates_known <= asked) & right).mean(axis=1).round(4).tolist(),
    }


def plan(settings: Settings) -> list[Part]:
    """Many models of few classes, few of many."""
    parts = parts_over("unknown", compute, presets="preset", sizes="size", seeds="seed")(settings)
    return [part for part in parts if part.settings["seed"] < N_MODELS.get(part.settings["n_known"], 1)]


def summarize(settings: Settings, outcomes: Outcomes) -> Results:
    rows: dict[tuple[str, int], list[Settings]] = {}
    for part, outcome in outcomes:
        rows.setdefault((part.settings["preset"], part.settings["n_known"]), []).append(values_of(outcome))
    found = []
    for (preset, n_known), runs in rows.items():
        accepted = np.array([run["false_accepts"] for run in runs])
        means = {
            name: np.mean([run[name] for run in runs], axis=0).round(4).tolist()
            for name in ("false_accepts", "known_accepted", "known_right")
        }
        above = (accepted > np.array(settings["rates"])).sum(axis=0).tolist()
        worst = accepted.max(axis=0).tolist()
        found.append({"preset": preset, "n_known": n_known, "n_models": len(runs), **means})
        found[-1] |= {"n_above": above, "worst": worst, "runs": runs}
    return {"rates": settings["rates"], "models": found}


def tabulate(results: Results) -> str:
    rows = []
    for found in results["models"]:
        row = [f"`{found['preset']}`", f"{found['n_known']}", f"{found['n_models']}"]
        for rate in SHOWN:
            place = results["rates"].index(rate)
            unknown, worst, known = (100 * found[kind][place] for kind in ("false_accepts", "worst", "known_accepted"))
            row += [f"{unknown:.1f} ({worst:.1f}; {found['n_above'][place]})", f"{known:.1f}"]
        rows.append(row)
    header = "preset | classes | models"
    for rate in SHOWN:
        header += f" | unknown accepted at {100 * rate:.0f} %: mean (worst; models above) | known accepted"
    return table(header, rows) + "\n![The rate asked for and the share accepted](images/unknown.png)\n"


def draw(results: Results) -> Any:
    rates = 100 * np.array(results["rates"])
    figure, (left, right) = new_plot("--reject, %", size=(9.6, 4.2), n_panels=2)
    left.plot([0, 50], [0, 50], color="#999999", lw=1, ls="--", label="as promised")
    colors = {"balanced": RED, "deep": BLUE}
    sizes = sorted({found["n_known"] for found in results["models"]})
    styles: dict[int, Any] = dict(zip(sizes, ("-", "--", "-.", ":", (0, (8, 1, 1, 1, 1, 1))), strict=False))
    for found in results["models"]:
        look = {"color": colors.get(found["preset"], "#333333"), "ls": styles[found["n_known"]], "marker": "o", "ms": 3}
        label = f"{found['preset']}, {found['n_known']} classes"
        left.plot(rates, 100 * np.array(found["false_accepts"]), label=label, **look)
        right.plot(rates, 100 * np.array(found["known_accepted"]), label=label, **look)
    left.set(xlim=(0, 52), ylim=(0, 52), ylabel="images of unknown classes accepted, %")
    right.set(xlim=(0, 52), ylim=(0, 100), ylabel="images of known classes accepted, %")
    left.legend(frameon=False, fontsize=7)
    return figure


EXPERIMENT = benchmark(globals())

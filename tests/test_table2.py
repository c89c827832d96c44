"""Table 2 by hand: its rows, their names, and the paper's figures beside them."""

import numpy as np

from lnbnn.lab import get_experiments
from lnbnn.lab.base import markdown_table, mean_sd
from lnbnn.lab.parts import kernel_part, responses_part, scores_part
from lnbnn.lab.table2 import METHODS, merged
from lnbnn.lab.table2 import PAPER as PAPER2
from lnbnn.lab.table2 import row_of as row_of_table2
from lnbnn.lab.table2 import summarize as summarize_table2
from lnbnn.lab.table2 import tabulate as tabulate_table2
from lnbnn.params import preset_params


def table2_outcomes(n_train=15):
    """Two splits: a method whose whole image is right and whose quarter is wrong, and kernels that are or are not."""
    right, wrong = np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([[1.0, 0.0], [0.0, 1.0]])
    kept = {"truth": np.array([1, 0]), "seconds": np.array(2.0)}
    outcomes = []
    for seed in (0, 1):
        split = {"n_train": n_train, "n_test": 15, "seed": seed}
        responses = responses_part("local-nbnn", split, {"scale_weight": 0.0})
        outcomes.append((responses, kept | {"totals": np.stack([-right, -wrong], axis=1)}))
        for how, scores in (({"machine": "svm", "blend": 0.0}, wrong), ({"response": "unit", "levels": 2}, right)):
            outcomes.append((kernel_part("local-nbnn-kernel", how, responses), kept | {"scores": scores}))
    sizes = responses_part("local-nbnn", split, {"scale_weight": 0.25})
    outcomes.append((kernel_part("local-nbnn-kernel", {"machine": "svm"}, sizes), kept | {"scores": right}))
    paper = scores_part("local-nbnn", split, preset_params("paper"))
    outcomes.append((paper, kept | {"scores": np.array([[0.0, 1.0], [0.0, 1.0]])}))
    outcomes.append((scores_part("spm-hard", split, {}), kept | {"scores": wrong}))
    return outcomes


def test_table2_by_hand():
    results = summarize_table2({}, table2_outcomes())
    rows = results["columns"]["15"]
    assert {name: row["accuracy"] for name, row in rows.items()} == {
        "local-nbnn": [100.0, 100.0],
        "local-nbnn-kernel": [0.0, 0.0],
        "local-nbnn-kernel + blend, logistic regression, quarters": [100.0, 100.0],
        "local-nbnn-kernel + sizes, blend": [100.0],
        "local-nbnn, the authors' grid": [50.0],
        "spm-hard": [0.0],
    }
    assert rows["local-nbnn, the authors' grid"]["per_class"] == [0.0, 1.0]
    assert (rows["spm-hard"]["mean"], rows["spm-hard"]["sd"]) == (0.0, None)
    assert tabulate_table2(results).splitlines()[2:] == [
        "| `local-nbnn` | 100.0 ± 0.0 | 2 | 66.1 ± 1.1 |",
        "| `local-nbnn, the authors' grid` | 50.0 | 1 | 66.1 ± 1.1 |",
        "| `spm-hard` | 0.0 | 1 | 62.5 ± 0.9 |",
        "| `local-nbnn-kernel` | 0.0 ± 0.0 | 2 | suggested only |",
        "| `local-nbnn-kernel + blend, logistic regression, quarters` | 100.0 ± 0.0 | 2 |  |",
        "| `local-nbnn-kernel + sizes, blend` | 100.0 | 1 |  |",
    ]


def test_table2_of_the_other_set_has_its_own_figures():
    results = summarize_table2({}, table2_outcomes(n_train=30)) | {"dataset": "caltech256-quick"}
    assert tabulate_table2(results).splitlines()[2] == "| `local-nbnn` | 100.0 ± 0.0 | 2 | 40.1 |"


def test_table2_has_the_papers_rows_on_three_or_five_splits_and_both_columns():
    experiments = get_experiments("table2")
    parts = [part for experiment in experiments for part in experiment.plan(experiment.settings)]
    rows = {}
    for part in parts:
        rows.setdefault(row_of_table2(part), set()).add((part.settings["n_train"], part.settings["seed"]))
    named = [row for experiment in experiments for row in experiment.settings["params"]]
    assert [row for row in rows if row in named] == list(dict.fromkeys(named))
    assert set(PAPER2["caltech101"]) == set(PAPER2["caltech256"]) <= set(rows)
    for name, splits in rows.items():
        slow = name.startswith("nbnn") or name.endswith("grid")
        assert sorted(splits) == [(n, seed) for n in (15, 30) for seed in range(3 if slow else 5)], name
    for part in parts:  # what the paper's rows are made with
        if (row := row_of_table2(part)) in PAPER2["caltech101"] and not row.startswith("spm"):
            assert part.settings["params"]["scale_weight"] == 0.0
            assert (part.settings.get("blend"), part.settings.get("levels")) in ((None, None), (0.0, 1))


def test_rows_of_several_records_are_one_table():
    first = {"columns": {"15": {"nbnn": 1, "spm-hard": 2}}, "dataset": "caltech256", "peak": 1}
    second = {"columns": {"30": {"nbnn": 3}, "15": {"nbnn": 4, "spm-soft": 5}}, "dataset": "caltech256", "peak": 2}
    columns = {"15": {"nbnn": 1, "spm-hard": 2, "spm-soft": 5}, "30": {"nbnn": 3}}
    assert merged([first, second]) == {"columns": columns, "dataset": "caltech256", "peak": 1}
    assert first["columns"] == {"15": {"nbnn": 1, "spm-hard": 2}}


def test_a_record_of_table2_is_named_by_its_rows_and_column():
    assert METHODS.label(METHODS.settings | {"n_train": [15]}) == "table2-methods-15"


def test_mean_sd_and_table():
    assert mean_sd([66.0]) == "66.0"
    assert mean_sd([65.0, 67.0]) == "66.0 ± 1.4"
    assert markdown_table(["a", "b"], [["1", "2"]]) == "| a | b |\n| --- | --- |\n| 1 | 2 |\n"

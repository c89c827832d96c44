"""Writers of a model that get a signal, or run out of disk, at random moments: the model must be as before or as after.

    python tests/killing.py FOLDER --kills 200 --signals 200 --commands 20 --full-disks 50 --seed 0

prints what it did as JSON, and fails on the first model that is not whole. A process of its own, without threads, so
that writers can be forked from it.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path

import numpy as np
from PIL import Image
from synthetic import grating, make_features

from lnbnn import LocalNBNN, load
from lnbnn.errors import LnbnnError
from lnbnn.model.changes import check_model, compact, edit, list_images

CAUGHT = (signal.SIGINT, signal.SIGTERM)  # these unwind the writer, SIGKILL does not
QUERY_SEEDS = (9000, 9001)


def features(seed, n=200):
    rng = np.random.default_rng(seed)
    return make_features(rng.integers(0, 128, (n, 8), dtype=np.uint8), seed=seed)


QUERIES = [features(seed, 20) for seed in QUERY_SEEDS]


def fitted(held):
    """A model fitted at once on what is held: a dict of id to (seed, label)."""
    ordered = sorted(held)
    model = LocalNBNN(n_neighbors=5, index="exact", n_jobs=1)
    return model.fit([features(held[i][0]) for i in ordered], [held[i][1] for i in ordered])


def next_state(state, number, seed):
    """The change that step ``number`` makes to a state (held, next_id), and the state after it."""
    held, next_id = dict(state[0]), state[1]
    rng = np.random.default_rng([seed, number])
    known = sorted(held)
    chosen, label = known[rng.integers(len(known))], "abcd"[rng.integers(4)]
    action = rng.choice(["add", "add", "remove", "relabel", "compact"])
    action = "add" if len(known) < 4 else "remove" if len(known) > 12 else str(action)
    if action == "add":
        held[next_id] = (100 + number, label)
        return (action, 100 + number, label), (held, next_id + 1)
    if action == "remove":
        del held[chosen]
    elif action == "relabel":
        held[chosen] = (held[chosen][0], label)
    return (action, chosen, label), (held, next_id)


def change(folder, step):
    action, number, label = step
    if action == "compact":
        compact(folder)
        return
    with edit(folder) as model:
        if action == "add":
            model.add([features(number)], [label])
        elif action == "remove":
            model.remove(number)
        else:
            model.relabel(number, label)


def matches(folder, state):
    """Whether the folder holds exactly these images under these labels and ids, whole, and answers as it should."""
    held, _ = state
    found = {image.id: image.label for image in list_images(folder)}
    if found != {number: label for number, (_, label) in held.items()}:
        return False
    report = check_model(folder)
    assert report.problems == (), report.problems
    assert np.array_equal(load(folder).totals(QUERIES), fitted(held).totals(QUERIES)), "other answers"
    return True


def fork(work):
    """Run ``work(report)`` in a child; returns its process number and the file its reports can be read from."""
    out, into = os.pipe()
    signal.pthread_sigmask(signal.SIG_BLOCK, CAUGHT)
    child = os.fork()
    if child == 0:
        os.close(out)
        code = 1
        try:
            try:
                signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # as the command does
                signal.pthread_sigmask(signal.SIG_UNBLOCK, CAUGHT)
                work(lambda number: os.write(into, b"%d\n" % number))
                code = 0
            finally:
                signal.pthread_sigmask(signal.SIG_BLOCK, CAUGHT)
        except (KeyboardInterrupt, SystemExit):
            code = 2
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, CAUGHT)
    os.close(into)
    return child, os.fdopen(out)


def state_after(folder, state, number, seed, reports):
    """The state the folder is in after the steps reported done, or one more; fails if it is in neither."""
    for _ in reports:
        _, state = next_state(state, number, seed)
        number += 1
    if matches(folder, state):
        return state, number, False
    step, after = next_state(state, number, seed)
    assert matches(folder, after), f"neither before nor after step {number}, {step}"
    return after, number + 1, True


def ended(child, sent):
    """The exit code of a child, and how often the signal had to be sent again.

    Python drops an exception that a signal raises while an object is being deleted; the writer then goes on.
    """
    for again in range(20):
        until = time.monotonic() + 5.0
        while time.monotonic() < until:
            number, status = os.waitpid(child, os.WNOHANG)
            if number:
                return os.waitstatus_to_exitcode(status), again
            time.sleep(0.002)
        os.kill(child, sent)
    raise AssertionError(f"the writer does not end by {sent.name}")


def kill_writers(folder, state, *, n_kills, seed, signals=(signal.SIGKILL,), number=0):
    """Fork a writer, send it a signal at a random moment of its first few changes, look at the model; again and again.

    Now and then the same signal comes twice, as from an impatient user.
    """
    rng = np.random.default_rng([seed, number])
    first, n_committed, n_again, n_sent = number, 0, 0, dict.fromkeys((one.name for one in signals), 0)
    longest_s = 0.1

    def write(report):
        held, step_number = state, number
        while True:
            step, held = next_state(held, step_number, seed)
            change(folder, step)
            step_number += 1
            report(step_number)

    for _ in range(n_kills):
        child, out = fork(write)
        before = number
        time.sleep(rng.uniform(0, longest_s))
        sent = signals[rng.integers(len(signals))]
        n_sent[sent.name] += 1
        os.kill(child, sent)
        if rng.random() < 0.2:
            time.sleep(rng.uniform(0, 0.003))
            os.kill(child, sent)
        code, again = ended(child, sent)
        n_again += again
        assert code in (2, -sent), f"the writer ended with {code}"
        with out:
            state, number, committed = state_after(folder, state, number, seed, out.read().split())
        n_committed += committed
        # As many changes as kills, about: on a slow machine the writer gets more time, on a fast one less.
        longest_s = min(3.0, longest_s * 1.25) if number == before else max(0.01, longest_s / 1.15)
    counts = {"changes": number - first, "between_commit_and_report": n_committed, "sent_again": n_again}
    return state, number, {"sent": n_sent, **counts}


def fill_disks(folder, state, *, n_times, seed):
    """Let a writer run into a limit of the size of its files, as on a full disk; the model must be as before."""
    rng = np.random.default_rng(seed + 1)
    n_refused = 0
    for number in range(n_times):
        step, after = next_state(state, 100_000 + number, seed)
        limit = int(rng.integers(0, 6_000))

        def write(report, step=step, limit=limit):
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            try:
                change(folder, step)
                report(1)
            except LnbnnError as error:
                assert "nothing was changed" in str(error), error
                report(0)

        child, out = fork(write)
        with out:
            told = out.read().split()
        assert os.waitpid(child, 0)[1] == 0, f"step {step} with files up to {limit} bytes"
        state = after if told == ["1"] else state
        n_refused += told == ["0"]
        assert matches(folder, state)
    return {"full_disks": n_times, "refused": n_refused}


def kill_commands(folder, *, n_kills, seed):
    """Send the real command a signal while it adds an image; the model must be as before or as after."""
    rng = np.random.default_rng(seed + 2)
    folder.mkdir(parents=True)
    sift = {"bin_sizes": [4], "step_px": 7, "min_contrast": 0.5, "longest_side": 48}
    model = folder / "model"
    start = [grating(30.0 * place, seed=place) for place in range(4)]
    LocalNBNN(index="exact", descriptor_params=sift, n_jobs=1).fit(start, list("aabb")).save(model)
    command = [sys.executable, "-m", "lnbnn", "add", str(model), "--label", "c"]
    n_held, n_after, n_finished, usual_s = 4, 0, 0, 2.0
    for number in range(n_kills):
        picture = folder / "new.png"
        Image.fromarray(grating(17.0 * number, seed=50 + number)).save(picture)
        started = time.perf_counter()
        writer = subprocess.Popen([*command, str(picture)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if number == 0:  # to see how long it takes
            assert writer.wait() == 0
            usual_s = time.perf_counter() - started
        else:
            time.sleep(rng.uniform(0.6, 1.1) * usual_s)
            n_finished += writer.poll() is not None
            writer.send_signal([signal.SIGKILL, *CAUGHT][number % 3])
            writer.wait()
        report = check_model(model)
        assert report.problems == (), report.problems
        assert report.n_images in (n_held, n_held + 1)
        n_after += report.n_images > n_held
        n_held = report.n_images
    assert [path.name for path in sorted(folder.iterdir())] == ["model", "new.png"]
    return {"commands_killed": n_kills - 1 - n_finished, "commands_whole": n_finished + 1, "added": n_after}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--signals", type=int, default=0)
    parser.add_argument("--commands", type=int, default=0)
    parser.add_argument("--full-disks", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    state = ({number: (number, "abc"[number // 2]) for number in range(6)}, 6)
    model = options.folder / "killed"
    fitted(state[0]).save(model)
    result = {}
    state, number, result["killed"] = kill_writers(model, state, n_kills=options.kills, seed=options.seed)
    state, number, result["signaled"] = kill_writers(
        model, state, n_kills=options.signals, seed=options.seed, signals=CAUGHT, number=number
    )
    result |= fill_disks(model, state, n_times=options.full_disks, seed=options.seed)
    compact(model)  # cleans up what the killed ones left
    left = {path.name.split("-")[0] for path in model.iterdir()}
    assert left == {"data", "manifest.json", "writer.lock"}, left
    assert len([path for path in model.iterdir() if path.is_dir()]) == 1
    if options.commands:
        result |= kill_commands(options.folder / "commands", n_kills=options.commands, seed=options.seed)
    print(json.dumps(result))


if __name__ == "__main__":
    main()

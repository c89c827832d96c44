"""The feature store: found by content and settings, whole entries only."""

from __future__ import annotations

import errno
import hashlib
import os
import time

import numpy as np
import pytest
from PIL import Image
from synthetic import grating, make_features, small_sift

from lnbnn import DenseSIFT, FeatureStore
from lnbnn.errors import InvalidInputError, LnbnnError
from lnbnn.reading.extraction import features_of, iter_features


def digest(content):
    return hashlib.sha256(content).hexdigest()


PICTURE = digest(b"picture")


def some_features(n=5, dtype=np.uint8):
    return make_features(np.arange(n * 8).reshape(n, 8).astype(dtype), seed=1)


def files_in(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def assert_same(first, second):
    for name in ("descriptors", "xy", "scale"):
        a, b = getattr(first, name), getattr(second, name)
        assert a.dtype == b.dtype
        assert np.array_equal(a, b)
    assert first.size == second.size


class CountingSIFT(DenseSIFT):
    """Counts how often it is asked."""

    n_calls = 0

    def extract(self, image):
        type(self).n_calls += 1
        return super().extract(image)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("n", [5, 0])
def test_round_trip(tmp_path, dtype, n):
    store = FeatureStore(tmp_path)
    key = store.key(PICTURE, DenseSIFT())
    assert store.get(key) is None
    store.put(key, some_features(n, dtype))
    assert_same(FeatureStore(tmp_path).get(key), some_features(n, dtype))


def test_key_changes_with_every_setting(tmp_path):
    store = FeatureStore(tmp_path)
    changed = {"bin_sizes": (4, 6), "step_px": 5, "min_contrast": 1.0, "longest_side": 200}
    assert set(changed) == set(DenseSIFT.param_names()), "a new setting belongs in this test"
    keys = {store.key(PICTURE, DenseSIFT())}
    for name, value in changed.items():
        keys.add(store.key(PICTURE, DenseSIFT(**{name: value})))
    assert len(keys) == 1 + len(changed)


def test_key_changes_with_content_version_and_name(tmp_path):
    store = FeatureStore(tmp_path)

    class Newer(DenseSIFT):
        version = DenseSIFT.version + 1

    class Other(DenseSIFT):
        name = "other"

    keys = [
        store.key(PICTURE, DenseSIFT()),
        store.key(digest(b"picturf"), DenseSIFT()),
        store.key(digest(b""), DenseSIFT()),
    ]
    keys += [store.key(PICTURE, Newer()), store.key(PICTURE, Other())]
    assert len(set(keys)) == 5


def test_key_does_not_depend_on_how_settings_are_written(tmp_path):
    store = FeatureStore(tmp_path)
    key = store.key(PICTURE, DenseSIFT((4, 6)))
    assert store.key(PICTURE, DenseSIFT([4, 6])) == key
    assert FeatureStore(tmp_path / "other").key(PICTURE, DenseSIFT((4, 6))) == key


def test_key_of_numpy_settings(tmp_path):
    store = FeatureStore(tmp_path)
    key = store.key(PICTURE, DenseSIFT((4, 6), step_px=3))
    assert store.key(PICTURE, DenseSIFT(np.array([4, 6]), step_px=np.int64(3))) == key


def test_extracted_once(tmp_path):
    path = tmp_path / "x.png"
    Image.fromarray(grating(0, seed=1)).save(path)
    store = FeatureStore(tmp_path / "store")
    CountingSIFT.n_calls = 0
    descriptor = CountingSIFT((4,), longest_side=48)
    first = features_of(path, descriptor, store)
    copy = tmp_path / "another name.png"
    copy.write_bytes(path.read_bytes())
    assert_same(features_of(copy, descriptor, store), first)
    assert CountingSIFT.n_calls == 1
    assert_same(features_of(path, descriptor), first)
    assert CountingSIFT.n_calls == 2, "without a store nothing is kept"


def test_many_images_share_a_store(tmp_path):
    paths = []
    for number in range(6):
        paths.append(tmp_path / f"{number}.png")
        Image.fromarray(grating(30 * number, seed=number)).save(paths[-1])
    store = FeatureStore(tmp_path / "store")
    first = list(iter_features(paths, small_sift(), n_jobs=2, store=store))
    again = list(iter_features(paths, small_sift(), n_jobs=1, store=store))
    for a, b in zip(first, again, strict=True):
        assert_same(a, b)
    assert len(files_in(tmp_path / "store")) == 6


@pytest.mark.parametrize("damage", ["empty", "cut", "text", "gone"])
def test_corrupt_entry_is_rewritten(tmp_path, damage):
    path = tmp_path / "x.png"
    Image.fromarray(grating(0, seed=1)).save(path)
    store = FeatureStore(tmp_path / "store")
    good = features_of(path, small_sift(), store)
    (entry,) = files_in(tmp_path / "store")
    whole = entry.read_bytes()
    if damage == "empty":
        entry.write_bytes(b"")
    elif damage == "cut":
        entry.write_bytes(whole[: len(whole) // 2])
    elif damage == "text":
        entry.write_text("not an archive")
    else:
        entry.unlink()
    assert_same(features_of(path, small_sift(), store), good)
    assert entry.read_bytes() == whole


def test_no_damage_to_an_entry_raises(tmp_path):
    """Whatever byte is changed, the entry is whole (a byte that says nothing), or absent."""
    store = FeatureStore(tmp_path)
    key = store.key(PICTURE, DenseSIFT())
    store.put(key, some_features())
    (entry,) = files_in(tmp_path)
    whole = entry.read_bytes()
    n_absent = 0
    for place in range(0, len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 0x09
        entry.write_bytes(damaged)
        found = store.get(key)
        n_absent += found is None
        if found is not None:
            assert_same(found, some_features())
    assert n_absent > len(whole) // 4
    entry.write_bytes(whole)
    assert_same(store.get(key), some_features())


def test_entry_with_impossible_content_counts_as_absent(tmp_path):
    store = FeatureStore(tmp_path)
    key = store.key(PICTURE, DenseSIFT())
    store.put(key, some_features())
    (entry,) = files_in(tmp_path)
    fine = {"descriptors": np.zeros((2, 4), np.uint8), "xy": np.zeros((2, 2)), "scale": np.ones(2), "size": [5, 5]}
    for changes in ({"xy": np.full((2, 2), 7.0)}, {"size": [5]}, {"size": [0, 5]}, {"scale": np.ones(3)}):
        with open(entry, "wb") as file:
            np.savez(file, **{**fine, **changes})
        assert store.get(key) is None
    with open(entry, "wb") as file:
        np.savez(file, **{name: fine[name] for name in ("descriptors", "xy", "size")})
    assert store.get(key) is None


def test_pickled_content_is_never_run(tmp_path):
    store = FeatureStore(tmp_path)
    key = store.key(PICTURE, DenseSIFT())
    store.put(key, some_features())
    (entry,) = files_in(tmp_path)
    bomb = np.array([[object()]], dtype=object)
    with open(entry, "wb") as file:
        np.savez(file, allow_pickle=True, descriptors=bomb, xy=np.zeros((1, 2)), scale=np.ones(1), size=[5, 5])
    assert store.get(key) is None


def test_full_disk_raises_and_leaves_nothing(tmp_path, monkeypatch):
    store = FeatureStore(tmp_path)
    key = store.key(PICTURE, DenseSIFT())

    def savez(file, **arrays):
        file.write(b"half of an entry")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(np, "savez", savez)
    with pytest.raises(LnbnnError, match=r"features cannot be stored \(No space left on device\)"):
        store.put(key, some_features())
    assert files_in(tmp_path) == []
    assert store.get(key) is None


def test_interrupt_leaves_nothing(tmp_path, monkeypatch):
    store = FeatureStore(tmp_path)
    key = store.key(PICTURE, DenseSIFT())

    def savez(file, **arrays):
        file.write(b"half of an entry")
        raise KeyboardInterrupt

    monkeypatch.setattr(np, "savez", savez)
    with pytest.raises(KeyboardInterrupt):
        store.put(key, some_features())
    assert files_in(tmp_path) == []


def test_what_a_killed_process_left_is_removed_once_it_is_old(tmp_path):
    store = FeatureStore(tmp_path)
    store.put(store.key(PICTURE, DenseSIFT()), some_features())
    left = [tmp_path / "unfinished" / f".partial-{name}.npz" for name in ("old", "young")]
    for path in left:
        path.write_bytes(b"half")
    os.utime(left[0], (time.time() - 7200.0,) * 2)
    FeatureStore(tmp_path)
    assert [path.exists() for path in left] == [False, True]
    assert len(files_in(tmp_path)) == 2


def test_a_store_that_cannot_be_written_can_be_read(tmp_path):
    store = FeatureStore(tmp_path)
    key = store.key(PICTURE, DenseSIFT())
    store.put(key, some_features())
    (tmp_path / "unfinished").rmdir()
    assert_same(FeatureStore(tmp_path).get(key), some_features())
    assert not (tmp_path / "unfinished").exists()


def test_failed_replacement_keeps_the_old_entry(tmp_path, monkeypatch):
    store = FeatureStore(tmp_path)
    key = store.key(PICTURE, DenseSIFT())
    store.put(key, some_features())

    def replace(source, target):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(LnbnnError, match="Read-only file system"):
        store.put(key, some_features(3))
    assert len(files_in(tmp_path)) == 1
    assert_same(store.get(key), some_features())


def test_put_replaces(tmp_path):
    store = FeatureStore(tmp_path)
    key = store.key(PICTURE, DenseSIFT())
    store.put(key, some_features())
    store.put(key, some_features(3))
    assert len(store.get(key)) == 3
    assert len(files_in(tmp_path)) == 1


def test_file_in_the_way(tmp_path):
    (tmp_path / "store").write_text("")
    with pytest.raises(InvalidInputError, match=r"store: cannot be used as a feature cache"):
        FeatureStore(tmp_path / "store")


# ---- entries that are not what their names say -----------------------------------------------------------------------


def two_entries(tmp_path):
    store = FeatureStore(tmp_path)
    keys = [store.key(digest(content), DenseSIFT()) for content in (b"one", b"other")]
    for number, key in enumerate(keys):
        store.put(key, make_features(np.full((4, 8), number, np.uint8), seed=number))
    return store, keys


def test_exchanged_entries_are_misses_with_one_warning(tmp_path, caplog):
    store, keys = two_entries(tmp_path)
    good = [store.get(key) for key in keys]
    paths = files_in(tmp_path)
    first, second = (path.read_bytes() for path in paths)
    paths[0].write_bytes(second)
    paths[1].write_bytes(first)
    assert [store.get(key) for key in keys] == [None, None]
    assert len(caplog.records) == 1
    assert "damaged, or not what its name says" in caplog.text
    for key, features in zip(keys, good, strict=True):
        store.put(key, features)
        assert_same(store.get(key), features)
    assert len(caplog.records) == 1


@pytest.mark.parametrize("change", ["descriptors", "xy", "scale", "size", "dtype", "no digest"])
def test_changed_arrays_are_a_miss(tmp_path, caplog, change):
    store, (key, _) = two_entries(tmp_path)
    path = store._path(key)
    with np.load(path) as stored:
        arrays = dict(stored)
    if change == "no digest":
        del arrays["digest"]
    elif change == "dtype":
        arrays["descriptors"] = arrays["descriptors"].astype(np.float32)
    else:
        arrays[change] = arrays[change].copy()
        arrays[change].flat[0] = 1 if arrays[change].flat[0] != 1 else 2
        arrays["xy"] = np.clip(arrays["xy"], 0, 1)
    np.savez(path, **arrays)
    assert store.get(key) is None
    assert len(caplog.records) == 1


def test_an_absent_entry_is_no_reason_for_a_warning(tmp_path, caplog):
    assert FeatureStore(tmp_path).get("0" * 64) is None
    assert caplog.records == []


def test_exchanged_entries_do_not_change_a_fit(tmp_path):
    paths = []
    for number in range(4):
        paths.append(tmp_path / f"{number}.png")
        Image.fromarray(grating(40 * number, seed=number)).save(paths[-1])
    store = FeatureStore(tmp_path / "store")
    good = list(iter_features(paths, small_sift(), store=store))
    entries = files_in(tmp_path / "store")
    contents = [entry.read_bytes() for entry in entries]
    for entry, content in zip(entries, contents[1:] + contents[:1], strict=True):
        entry.write_bytes(content)
    for _ in range(2):
        for a, b in zip(good, iter_features(paths, small_sift(), store=store), strict=True):
            assert_same(a, b)
    assert [entry.read_bytes() for entry in entries] == contents, "written again"

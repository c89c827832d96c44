"""Photos asked about: by their content, of a limited size, the oldest go first and none that is in use."""

from __future__ import annotations

import asyncio
import hashlib
import io

import pytest

from lnbnn.page.replies import Refused
from lnbnn.page.tray import Tray


@pytest.fixture
def tray():
    made = Tray(1 << 20, n_photos=3, n_bytes=100)
    yield made
    made.close()


def put(tray, content):
    return tray.take_file(io.BytesIO(content))


def has(tray, digest):
    try:
        with tray.hold(digest) as file:
            return file.is_file()
    except Refused:
        return False


async def _blocks(*parts):
    for part in parts:
        yield part


def test_the_same_content_is_the_same_photo_however_it_came(tray):
    digest = asyncio.run(tray.take(_blocks(b"ab", b"", b"cd")))
    assert digest == hashlib.sha256(b"abcd").hexdigest() == put(tray, b"abcd")
    with tray.hold(digest) as file:
        assert file.read_bytes() == b"abcd"
        assert file.name == digest


def test_too_large_and_empty_ones_leave_nothing(tray):
    with pytest.raises(Refused, match="may have 1 MiB") as refused:
        asyncio.run(tray.take(_blocks(*[b"x" * 65536] * 17)))
    assert refused.value.status == 413
    with pytest.raises(Refused, match="empty"):
        put(tray, b"")
    assert list(tray._folder.iterdir()) == []


def test_an_upload_that_breaks_off_leaves_nothing(tray):
    async def broken():
        yield b"half"
        raise ConnectionError

    with pytest.raises(ConnectionError):
        asyncio.run(tray.take(broken()))
    assert list(tray._folder.iterdir()) == []


def test_the_oldest_go_first_unless_they_are_in_use(tray):
    first, second, third = (put(tray, content) for content in (b"1", b"2", b"3"))
    assert has(tray, first), "it is used now: the second is the oldest"
    fourth = put(tray, b"4")
    assert [has(tray, digest) for digest in (first, second, third, fourth)] == [True, False, True, True]
    with tray.hold(first):
        put(tray, b"x" * 90)
        put(tray, b"y" * 90)
        assert has(tray, first)
    assert sum(file.stat().st_size for file in tray._folder.iterdir()) <= 100


@pytest.mark.parametrize("digest", ["../../etc/passwd", "", "0" * 64, "/etc/passwd"])
def test_what_was_not_put_there_is_not_there(tray, digest):
    with pytest.raises(Refused, match="send it again") as refused, tray.hold(digest):
        pass
    assert refused.value.status == 404


def test_all_photos_go_with_it():
    tray = Tray(1 << 20)
    put(tray, b"private")
    tray.close()
    assert not tray._folder.exists()

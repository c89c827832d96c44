"""Photos asked about: by their content, of a limited size, the oldest go first and none that is in use."""

from __future__ import annotations

import asyncio
import hashlib
import io

import pytest

from lnbnn.page.replies import Refused
from lnbnn.page.uploads import Uploads


@pytest.fixture
def uploads():
    made = Uploads(1 << 20, n_photos=3, n_bytes=100)
    yield made
    made.close()


def put(uploads, content):
    return uploads.take_file(io.BytesIO(content))


def has(uploads, digest):
    try:
        with uploads.hold(digest) as file:
            return file.is_file()
    except Refused:
        return False


async def _blocks(*parts):
    for part in parts:
        yield part


def test_the_same_content_is_the_same_photo_however_it_came(uploads):
    digest = asyncio.run(uploads.take(_blocks(b"ab", b"", b"cd")))
    assert digest == hashlib.sha256(b"abcd").hexdigest() == put(uploads, b"abcd")
    with uploads.hold(digest) as file:
        assert file.read_bytes() == b"abcd"
        assert file.name == digest


def test_too_large_and_empty_ones_leave_nothing(uploads):
    with pytest.raises(Refused, match="at most 1 MiB") as refused:
        asyncio.run(uploads.take(_blocks(*[b"x" * 65536] * 17)))
    assert refused.value.status == 413
    with pytest.raises(Refused, match="empty"):
        put(uploads, b"")
    assert list(uploads._folder.iterdir()) == []


def test_an_upload_that_breaks_off_leaves_nothing(uploads):
    async def broken():
        yield b"half"
        raise ConnectionError

    with pytest.raises(ConnectionError):
        asyncio.run(uploads.take(broken()))
    assert list(uploads._folder.iterdir()) == []


def test_the_oldest_go_first_unless_they_are_in_use(uploads):
    first, second, third = (put(uploads, content) for content in (b"1", b"2", b"3"))
    assert has(uploads, first), "it is used now: the second is the oldest"
    fourth = put(uploads, b"4")
    assert [has(uploads, digest) for digest in (first, second, third, fourth)] == [True, False, True, True]
    with uploads.hold(first):
        put(uploads, b"x" * 90)
        put(uploads, b"y" * 90)
        assert has(uploads, first)
    assert sum(file.stat().st_size for file in uploads._folder.iterdir()) <= 100


@pytest.mark.parametrize("digest", ["../../etc/passwd", "", "0" * 64, "/etc/passwd"])
def test_what_was_not_put_there_is_not_there(uploads, digest):
    with pytest.raises(Refused, match="send it again") as refused, uploads.hold(digest):
        pass
    assert refused.value.status == 404


def test_all_photos_go_with_it():
    uploads = Uploads(1 << 20)
    put(uploads, b"private")
    uploads.close()
    assert not uploads._folder.exists()

"""What decoding a picture takes in memory, format by format, and the amount that all threads share."""

from __future__ import annotations

import ctypes
import math
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from PIL import ExifTags, Image

__all__ = [
    "BLOCK_PIXELS",
    "DECODING",
    "MAX_PIXELS",
    "READING",
    "USUAL_BYTES",
    "ByteBudget",
    "bytes_to_decode",
    "bytes_to_open",
    "reduction",
    "return_free_memory",
]

MAX_PIXELS = 178_000_000
"""Largest picture that is decoded, in pixels (a 16,000 x 11,000 scan passes); above it a file is refused unread."""

USUAL_BYTES = 24 << 20
"""Taken before a picture is opened; most need no more."""

BLOCK_PIXELS = 1 << 18
"""Converted at a time, in up to 40 bytes each."""

_GIF_OPEN_BYTES = MAX_PIXELS + (1 << 20)  # Pillow may allocate a frame as it opens a GIF
_REDUCE_ABOVE = 1 << 26  # pixels; a larger picture is reduced as it is converted, where a small one is wanted

_malloc_trim: Callable[[int], int] | None
try:
    _malloc_trim = ctypes.CDLL(None).malloc_trim  # of glibc; others give memory back by themselves
except (AttributeError, OSError, TypeError):
    _malloc_trim = None


@dataclass
class ByteBudget:
    """An amount of memory that the threads of a process share: a thread that needs more than is left waits, first come,
    first served.

    Parameters
    ----------
    n_bytes : int
        The most that is held at once.
    """

    n_bytes: int
    _n_held: int = field(default=0, init=False)
    _turn: Any = field(default_factory=threading.Lock, init=False)  # held while waiting: small shares cannot overtake
    _changed: Any = field(default_factory=threading.Condition, init=False)

    @contextmanager
    def hold(self, n_bytes: int) -> Iterator[None]:
        """Hold a share; raises :class:`MemoryError` if it is larger than the whole."""
        if n_bytes > self.n_bytes:
            raise MemoryError(f"{n_bytes} bytes of {self.n_bytes}")
        with self._turn, self._changed:
            self._changed.wait_for(lambda: self._n_held + n_bytes <= self.n_bytes)
            self._n_held += n_bytes
        try:
            yield
        finally:
            with self._changed:
                self._n_held -= n_bytes
                self._changed.notify()


def return_free_memory() -> None:
    """Give freed memory back to the system: the C library would keep some of it for each thread."""
    if _malloc_trim is not None:
        _malloc_trim(0)


READING = ByteBudget(48 << 20)
"""What the files take that are being read."""

DECODING = ByteBudget(704 << 20)
"""What the pictures take that are being decoded."""


def bytes_to_open(data: bytes) -> int:
    """What opening a file may take, before anything is known but its first bytes."""
    if data.startswith(b"GIF8"):
        return _GIF_OPEN_BYTES
    if data.startswith(b"\0\0\1\0"):  # Pillow decodes an icon as it opens it
        return USUAL_BYTES + 16 * _icon_pixels(data)
    return USUAL_BYTES


def bytes_to_decode(picture: Any, data: bytes, longest_side: int | None, n_channels: int) -> int:
    """The most that decoding takes, all buffers included; asks the decoder for a smaller picture where it can give one.

    The numbers per pixel were measured, format by format.
    """
    full = picture.width * picture.height
    if longest_side is not None:
        # A JPEG can be decoded at 1/2, 1/4 or 1/8 size: keep at least twice the size that is wanted.
        picture.draft(None, (2 * longest_side, 2 * longest_side))
    pixels = picture.width * picture.height
    stored = pixels * (1 if picture.mode in ("1", "L", "P") else 2 if picture.mode.startswith("I;16") else 4)
    n_bytes = stored + max(0, len(data) - READING.n_bytes)
    if picture.format in ("JPEG", "MPO"):
        n_bytes += _coefficient_bytes(picture, data, full)
    elif picture.format == "GIF":
        n_bytes += pixels
    elif picture.format == "TIFF":
        is_turned = picture.tag_v2.get(ExifTags.Base.Orientation, 1) != 1  # by Pillow itself, into a copy
        n_bytes += _strip_bytes(picture) + (stored if is_turned else 0)
    elif picture.format == "TGA":
        n_bytes += stored if getattr(picture, "_flip_horizontally", True) else 0
    elif picture.format == "WEBP":
        n_bytes += 13 * pixels + len(data)
    elif picture.format == "AVIF":
        n_bytes += {"L": 7, "RGB": 12}.get(picture.mode, 16) * pixels + len(data)
    elif picture.format == "JPEG2000":
        n_bytes, pixels = _reduce_jpeg2000(picture, data, n_bytes, longest_side, n_channels)
    elif picture.format == "ICO":
        n_bytes = max(n_bytes, bytes_to_open(data))
    elif picture.tile and picture.tile[0][0] in ("bmp_rle", "ppm", "ppm_plain"):  # decoders written in Python
        n_bytes += 2 * stored + 2 * pixels
    return n_bytes + _result_bytes(pixels, max(picture.size), longest_side, n_channels)


def _result_bytes(pixels: int, longest: int, longest_side: int | None, n_channels: int) -> int:
    """The result, and once more as it is turned upright; the block that is converted."""
    factor = reduction(pixels, longest, longest_side)
    return 2 * n_channels * (pixels // factor**2) + 40 * min(pixels, BLOCK_PIXELS) + (64 << 10)


def _coefficient_bytes(picture: Any, data: bytes, pixels: int) -> int:
    """A JPEG of several scans is held as 16-bit coefficients, at full size however small the result."""
    place = 2
    while place + 4 <= len(data):
        if data[place] != 0xFF:
            place += 1
            continue
        marker = data[place + 1]
        if marker == 0xDA:
            break
        is_alone = marker in (0x00, 0x01, 0xFF) or 0xD0 <= marker <= 0xD8
        place += 1 if marker == 0xFF else 2 if is_alone else 2 + int.from_bytes(data[place + 2 : place + 4], "big")
    n_in_first_scan = data[place + 4] if place + 4 < len(data) else 0
    if not picture.info.get("progressive") and n_in_first_scan == picture.layers:
        return 0
    widest, tallest = (max(max(layer[side] for layer in picture.layer), 1) for side in (1, 2))
    return math.ceil(2 * pixels * sum(layer[1] * layer[2] for layer in picture.layer) / (widest * tallest)) + (1 << 20)


def _strip_bytes(picture: Any) -> int:
    """The strip or tile that libtiff decodes at a time; it can be larger than the picture."""
    tags = picture.tag_v2
    pixels = tags[322] * tags[323] if 322 in tags else picture.width * min(tags.get(278, 1 << 32), picture.height)
    bits = sum(tags.get(258, (1,))) if tags.get(277, 1) == len(tags.get(258, (1,))) else 64 * tags[277]
    is_ycbcr = tags.get(262) == 6  # decoded as RGBA
    return int(pixels * (4 if is_ycbcr else bits / 8)) + (1 << 20)


def _reduce_jpeg2000(
    picture: Any, data: bytes, n_bytes: int, longest_side: int | None, n_channels: int
) -> tuple[int, int]:
    """Bytes with the tile that is decoded at a time, and pixels; at 1/2, 1/4 ... of a size that would be too large."""
    start = data.index(b"\xff\x4f\xff\x51")
    right, bottom, left, top, width, height = struct.unpack_from(">6I", data, start + 8)
    (n_components,) = struct.unpack_from(">H", data, start + 40)
    pixels = max((right - left) * (bottom - top), picture.width * picture.height)
    if pixels > MAX_PIXELS:
        raise Image.DecompressionBombError
    tile = min(right - left, width) * min(bottom - top, height)
    n_levels = data[data.index(b"\xff\x52", start) + 9]
    n_bytes += 6 * n_components * tile + pixels
    longest = max(picture.size)
    while (
        longest_side is not None
        and picture._reduce < n_levels
        and longest >= 4 * longest_side
        and n_bytes + _result_bytes(pixels, longest, longest_side, n_channels) > DECODING.n_bytes
    ):
        picture.reduce = picture._reduce + 1
        n_bytes = n_bytes * 3 // 8  # measured: 0.29 for color, 0.33 for gray
        pixels, longest = pixels // 4, longest // 2
    return n_bytes, pixels


def _icon_pixels(data: bytes) -> int:
    """Pixels of the largest picture in an icon file."""
    largest = 0
    for number in range(int.from_bytes(data[4:6], "little")):
        entry = data[6 + 16 * number : 22 + 16 * number]
        start = int.from_bytes(entry[12:16], "little")
        head = data[start : start + 24]
        if head.startswith(b"\x89PNG"):
            width, height = (int.from_bytes(head[place : place + 4], "big") for place in (16, 20))
        elif head[:4] == b"\x0c\0\0\0":
            width, height = (int.from_bytes(head[place : place + 2], "little") for place in (4, 6))
        else:
            width, height = (abs(int.from_bytes(head[place : place + 4], "little", signed=True)) for place in (4, 8))
        largest = max(largest, width * height)
    return largest


def reduction(pixels: int, longest: int, longest_side: int | None) -> int:
    """1, or 2, 4, 8 for a huge picture of which at least twice the wanted size is left: as a JPEG is decoded."""
    factor = 1
    while longest_side is not None and pixels > _REDUCE_ABOVE and factor < 8 and longest >= 4 * factor * longest_side:
        factor *= 2
    return factor

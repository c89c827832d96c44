"""Read a picture, make it gray or RGB, resize it: the only place where a picture file is opened."""

from __future__ import annotations

import io
import math
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, UnidentifiedImageError

from lnbnn.errors import ImageReadError, InvalidInputError
from lnbnn.memory import ByteBudget, return_free_memory

__all__ = [
    "IMAGE_FORMATS",
    "IMAGE_SUFFIXES",
    "MAX_PIXELS",
    "decode_color",
    "decode_gray",
    "jpeg_thumbnail",
    "open_bytes",
    "read_bytes",
    "read_gray",
    "resize",
    "resize_longest",
    "to_color",
    "to_gray",
]

IMAGE_FORMATS = {
    "JPEG": (".jpg", ".jpeg", ".jpe", ".jfif"),
    "PNG": (".png",),
    "GIF": (".gif",),
    "BMP": (".bmp",),
    "PPM": (".pgm", ".ppm", ".pbm", ".pnm"),
    "TIFF": (".tif", ".tiff"),
    "WEBP": (".webp",),
    "JPEG2000": (".jp2",),
    "AVIF": (".avif",),
    "ICO": (".ico",),
    "DIB": (".dib",),
    "TGA": (".tga",),  # last: it has no signature
}
"""Formats that are read, by Pillow's names, each with its file name endings. No other decoder ever sees a file."""

IMAGE_SUFFIXES = frozenset(suffix for suffixes in IMAGE_FORMATS.values() for suffix in suffixes)
"""File name endings taken for pictures when a folder is listed (lower case)."""

MAX_PIXELS = 178_000_000
"""Largest picture that is decoded, in pixels (a 16,000 x 11,000 scan passes); above it a file is refused unread."""

MAX_FILE_BYTES = 512 << 20

# What all threads together may take: files as they are read, and pictures as they are decoded.
_READING = ByteBudget(48 << 20)
_DECODING = ByteBudget(704 << 20)
_USUAL_BYTES = 24 << 20  # taken before a picture is opened; most need no more
_GIF_OPEN_BYTES = MAX_PIXELS + (1 << 20)  # Pillow may allocate a frame as it opens a GIF
_BLOCK_PIXELS = 1 << 18  # converted at a time, in up to 40 bytes each
_REDUCE_ABOVE = 1 << 26  # pixels; a larger picture is reduced as it is converted, where a small one is wanted


def read_bytes(path: str | PathLike[str]) -> bytes:
    """The content of a picture file; every failure becomes one clear :class:`ImageReadError`."""
    path = Path(path)
    try:
        if path.exists() and not path.is_file():
            kind = "a folder" if path.is_dir() else "something else"
            raise ImageReadError(f"{path}: expected an image file, got {kind}.")
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ImageReadError(f"{path}: larger than {MAX_FILE_BYTES >> 20} MiB; shrink it first.")
        data = path.read_bytes()
    except FileNotFoundError:
        raise ImageReadError(f"{path}: no such file.") from None
    except ImageReadError:
        raise
    except OSError as error:
        raise ImageReadError(f"{path}: cannot be read ({error.strerror or error}); check its permissions.") from error
    except ValueError as error:  # a NUL, or letters that no file name can have
        raise ImageReadError(f"{path}: no file can have this name ({error}).") from error
    if not data:
        raise ImageReadError(f"{path}: the file is empty (0 bytes); copy it again or leave it out.")
    return data


@contextmanager
def open_bytes(path: str | PathLike[str]) -> Iterator[bytes]:
    """The content of a picture file while it is worked on: of large files, one thread has one at a time."""
    try:
        size = Path(path).stat().st_size
    except (OSError, ValueError):
        size = 0  # read_bytes says why
    with _READING.hold(min(size, _READING.n_bytes)):
        yield read_bytes(path)


def read_gray(path: str | PathLike[str], longest_side: int | None = None) -> NDArray[np.uint8]:
    """Read a picture file as a gray image, upright, with its longest side resized if asked for."""
    with open_bytes(path) as data:
        return decode_gray(data, longest_side, name=str(path))


def decode_gray(data: bytes, longest_side: int | None = None, *, name: str = "image") -> NDArray[np.uint8]:
    """Decode the bytes of a picture file into a gray image.

    EXIF orientation is applied; transparent pixels are laid on white; 16-bit values are scaled to 8 bits; of an
    animation the first frame is taken. All threads together take at most 704 MiB: a picture waits for its share.

    Parameters
    ----------
    data : bytes
        The file's content.
    longest_side : int, optional
        Resize the longest side to this many pixels, up or down, keeping the aspect ratio.
    name : str
        What to call the picture in an error message.

    Returns
    -------
    ndarray of shape (height, width), uint8
    """
    gray = _decode(data, longest_side, name, _gray_of_pillow)
    return gray if longest_side is None else resize_longest(gray, longest_side)


def decode_color(data: bytes, at_least: int | None = None, *, name: str = "image") -> NDArray[np.uint8]:
    """Decode the bytes of a picture file into an RGB image of shape (height, width, 3); a gray one has three equal.

    As :func:`decode_gray`, but not resized: ``at_least`` is the longest side that will be wanted, so that a much
    larger JPEG, and any picture of more than 67 million pixels, may be decoded at a reduced size.
    """
    return _decode(data, at_least, name, _color_of_pillow)


_Span: TypeAlias = tuple[float, float] | None  # least and greatest value of a picture that has no fixed range
_Converter: TypeAlias = Callable[[Image.Image, _Span], NDArray[np.uint8]]


def _decode(data: bytes, longest_side: int | None, name: str, convert: _Converter) -> NDArray[np.uint8]:
    n_bytes = 0
    try:
        n_bytes = _bytes_to_open(data)
        while True:  # at most twice: the second time with what the first found to be needed
            with _DECODING.hold(n_bytes):
                array, n_bytes = _decode_within(n_bytes, data, longest_side, convert)
            if array is not None:
                return array
    except UnidentifiedImageError:
        raise ImageReadError(f"{name}: not a picture in a known format; convert it or leave it out.") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        limit = MAX_PIXELS // 1_000_000
        raise ImageReadError(f"{name}: more than {limit} million pixels; shrink the picture first.") from None
    except MemoryError:
        if n_bytes > _DECODING.n_bytes:
            need, limit = n_bytes >> 20, _DECODING.n_bytes >> 20
            raise ImageReadError(
                f"{name}: decoding takes {need} MiB, more than the limit of {limit} MiB; shrink the picture first."
            ) from None
        raise ImageReadError(f"{name}: too large for the memory at hand; shrink the picture first.") from None
    except Exception as error:  # Pillow's decoders raise many types on a damaged file; each means the same to a user
        raise ImageReadError(f"{name}: damaged or cut short ({error}); copy it again or leave it out.") from (
            error.with_traceback(None)  # which would keep the picture
        )


def _decode_within(
    n_bytes: int, data: bytes, longest_side: int | None, convert: _Converter
) -> tuple[NDArray[np.uint8] | None, int]:
    """The pixels, or None if that takes more than so many bytes; and what it takes."""
    try:
        with Image.open(io.BytesIO(data), formats=list(IMAGE_FORMATS)) as picture:
            if picture.width * picture.height > MAX_PIXELS:
                raise Image.DecompressionBombError
            n_needed = _bytes_to_decode(picture, data, longest_side, 1 if convert is _gray_of_pillow else 3)
            try:
                return (_convert(picture, longest_side, convert) if n_needed <= n_bytes else None), n_needed
            finally:
                picture.close()
                del picture
    finally:
        if n_bytes > _USUAL_BYTES:
            return_free_memory()


# ---- how much memory a picture takes ---------------------------------------------------------------------------------


def _bytes_to_open(data: bytes) -> int:
    """What opening a file may take, before anything is known but its first bytes."""
    if data.startswith(b"GIF8"):
        return _GIF_OPEN_BYTES
    if data.startswith(b"\0\0\1\0"):  # Pillow decodes an icon as it opens it
        return _USUAL_BYTES + 16 * _icon_pixels(data)
    return _USUAL_BYTES


def _bytes_to_decode(picture: Any, data: bytes, longest_side: int | None, n_channels: int) -> int:
    """The most that decoding takes, all buffers included; asks the decoder for a smaller picture where it can give one.

    The numbers a pixel were measured, format by format.
    """
    full = picture.width * picture.height
    if longest_side is not None:
        # A JPEG can be decoded at 1/2, 1/4 or 1/8 size: keep at least twice the size that is wanted.
        picture.draft(None, (2 * longest_side, 2 * longest_side))
    pixels = picture.width * picture.height
    stored = pixels * _bytes_a_pixel(picture.mode)
    n_bytes = stored + max(0, len(data) - _READING.n_bytes)
    if picture.format in ("JPEG", "MPO"):
        n_bytes += _coefficient_bytes(picture, data, full)
    elif picture.format == "GIF":
        n_bytes += pixels
    elif picture.format == "TIFF":
        n_bytes += _strip_bytes(picture) + _turned_bytes(picture, stored)
    elif picture.format == "TGA":
        n_bytes += stored if getattr(picture, "_flip_horizontally", True) else 0
    elif picture.format == "WEBP":
        n_bytes += 13 * pixels + len(data)
    elif picture.format == "AVIF":
        n_bytes += {"L": 7, "RGB": 12}.get(picture.mode, 16) * pixels + len(data)
    elif picture.format == "JPEG2000":
        n_bytes, pixels = _reduce_jpeg2000(picture, data, n_bytes, longest_side, n_channels)
    elif picture.format == "ICO":
        n_bytes = max(n_bytes, _bytes_to_open(data))
    elif picture.tile and picture.tile[0][0] in ("bmp_rle", "ppm", "ppm_plain"):  # decoders written in Python
        n_bytes += 2 * stored + 2 * pixels
    return n_bytes + _result_bytes(pixels, max(picture.size), longest_side, n_channels)


def _result_bytes(pixels: int, longest: int, longest_side: int | None, n_channels: int) -> int:
    """The result, and once more as it is turned upright; the block that is converted."""
    factor = _reduction(pixels, longest, longest_side)
    return 2 * n_channels * (pixels // factor**2) + 40 * min(pixels, _BLOCK_PIXELS) + (64 << 10)


def _bytes_a_pixel(mode: str) -> int:
    """How Pillow stores a pixel."""
    return 1 if mode in ("1", "L", "P") else 2 if mode.startswith("I;16") else 4


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


def _turned_bytes(picture: Any, stored: int) -> int:
    """Pillow turns a TIFF upright by itself, into a copy."""
    return stored if picture.tag_v2.get(ExifTags.Base.Orientation, 1) != 1 else 0


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
        and n_bytes + _result_bytes(pixels, longest, longest_side, n_channels) > _DECODING.n_bytes
    ):
        picture.reduce = picture._reduce + 1
        n_bytes, pixels, longest = (
            n_bytes * 3 // 8,
            pixels // 4,
            longest // 2,
        )  # measured: 0.29 for color, 0.33 for gray
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


# ---- from Pillow to an array -----------------------------------------------------------------------------------------


def _convert(picture: Image.Image, longest_side: int | None, convert: _Converter) -> NDArray[np.uint8]:
    """The pixels, upright; a large picture block by block, so that no second copy of it is made."""
    picture.load()
    turn = _UPRIGHT.get(picture.getexif().get(ExifTags.Base.Orientation, 1))
    pixels = picture.width * picture.height
    factor = _reduction(pixels, max(picture.size), longest_side)
    is_small = pixels <= _BLOCK_PIXELS
    array = convert(picture, None) if is_small else _convert_blocks(picture, factor, convert)
    return array if turn is None else np.ascontiguousarray(turn(array))


def _reduction(pixels: int, longest: int, longest_side: int | None) -> int:
    """1, or 2, 4, 8 for a huge picture of which at least twice the wanted size is left: as a JPEG is decoded."""
    factor = 1
    while longest_side is not None and pixels > _REDUCE_ABOVE and factor < 8 and longest >= 4 * factor * longest_side:
        factor *= 2
    return factor


def _convert_blocks(picture: Image.Image, factor: int, convert: _Converter) -> NDArray[np.uint8]:
    width, height = picture.size
    span = _span(picture)
    n_channels = convert(picture.crop((0, 0, 1, 1)), span).shape[2:]
    result = np.empty((-(-height // factor), -(-width // factor), *n_channels), np.uint8)
    for left, top, right, bottom in _blocks(width, height):
        size = -(-(right - left) // factor), -(-(bottom - top) // factor)
        x, y = left // factor, top // factor
        block = convert(picture.crop((left, top, right, bottom)), span)
        result[y : y + size[1], x : x + size[0]] = resize(block, size)
    return result


def _blocks(width: int, height: int) -> Iterator[tuple[int, int, int, int]]:
    """Boxes that cover a picture, row after row; they start at multiples of 8."""
    n_columns = min(width, _BLOCK_PIXELS // 8)
    n_rows = _BLOCK_PIXELS // n_columns // 8 * 8
    for top in range(0, height, n_rows):
        for left in range(0, width, n_columns):
            yield left, top, min(left + n_columns, width), min(top + n_rows, height)


# How the stored pixels are turned upright, by EXIF orientation.
_UPRIGHT: dict[int, Callable[[NDArray[np.uint8]], NDArray[np.uint8]]] = {
    2: lambda stored: stored[:, ::-1],
    3: lambda stored: stored[::-1, ::-1],
    4: lambda stored: stored[::-1],
    5: lambda stored: stored.swapaxes(0, 1),
    6: lambda stored: stored.swapaxes(0, 1)[:, ::-1],
    7: lambda stored: stored[::-1, ::-1].swapaxes(0, 1),
    8: lambda stored: stored.swapaxes(0, 1)[::-1],
}


def to_gray(image: NDArray[np.generic]) -> NDArray[np.uint8]:
    """A gray uint8 image from an array: (h, w) gray, (h, w, 3) RGB or (h, w, 4) RGBA.

    The values are uint8, uint16, bool, or float in 0..1.
    """
    array = _to_8_bits(image)
    return array if array.ndim == 2 else _gray_of_pillow(Image.fromarray(array))


def to_color(image: NDArray[np.generic]) -> NDArray[np.uint8]:
    """An RGB uint8 image of shape (h, w, 3) from an array, as :func:`to_gray` takes them."""
    array = _to_8_bits(image)
    return array if array.ndim == 3 and array.shape[2] == 3 else _color_of_pillow(Image.fromarray(array))


def _to_8_bits(image: NDArray[np.generic]) -> NDArray[np.uint8]:
    array = np.asarray(image)
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if not (array.ndim == 2 or (array.ndim == 3 and array.shape[2] in (3, 4))) or 0 in array.shape:
        raise InvalidInputError(
            f"an image array must have shape (h, w), (h, w, 3) or (h, w, 4); got {array.shape}. "
            "Descriptors already extracted are passed as ImageFeatures."
        )
    if array.dtype == np.uint16:
        array = _scale_to_8_bits(array, 65535)
    elif array.dtype.kind == "f":
        if not np.isfinite(array).all() or array.min() < 0.0 or array.max() > 1.0:
            raise InvalidInputError("a float image must hold values in 0..1; got values outside, NaN or infinity.")
        array = _scale_to_8_bits(array, 1.0)
    elif array.dtype == np.bool_:
        array = array.astype(np.uint8) * 255
    elif array.dtype != np.uint8:
        raise InvalidInputError(f"an image array must be uint8, uint16, bool or float; got dtype {array.dtype}.")
    return np.ascontiguousarray(array)


def resize_longest(image: NDArray[np.uint8], longest_side: int) -> NDArray[np.uint8]:
    """Resize so that the longest side has ``longest_side`` pixels, keeping the aspect ratio (at least 1 px a side)."""
    height, width = image.shape[:2]
    factor = longest_side / max(height, width)
    if factor == 1.0:
        return image
    return resize(image, (max(1, round(width * factor)), max(1, round(height * factor))))


def resize(image: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.uint8]:
    """Resize to (width, height) pixels: averages when the picture shrinks, interpolates when it grows."""
    height, width = image.shape[:2]
    if (width, height) == size:
        return image
    shrinks = max(size) < max(width, height)
    return cv2.resize(image, size, interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR)


def _gray_of_pillow(picture: Image.Image, span: _Span = None) -> NDArray[np.uint8]:
    measured = _measurements(picture, span)
    return np.asarray(_on_white(picture).convert("L")) if measured is None else measured


def _color_of_pillow(picture: Image.Image, span: _Span = None) -> NDArray[np.uint8]:
    measured = _measurements(picture, span)
    return np.asarray(_on_white(picture).convert("RGB")) if measured is None else np.stack([measured] * 3, axis=-1)


def _measurements(picture: Image.Image, span: _Span) -> NDArray[np.uint8] | None:
    """A picture of more than 8 bits a pixel, which is always gray, in 8 bits; None for all others."""
    if picture.mode.startswith("I;16"):
        return _scale_to_8_bits(np.asarray(picture), 65535)
    if picture.mode not in ("I", "F"):
        return None
    low, high = span or _span(picture) or (0.0, 0.0)
    values = np.asarray(picture, dtype=np.float64)
    if picture.mode == "I" and low >= 0 and high <= 65535:
        return _scale_to_8_bits(values, 65535)
    if not np.isfinite(high - low):
        raise ValueError("the pixels are not finite numbers")
    return _scale_to_8_bits(np.nan_to_num(values, nan=low) - low, max(high - low, 1e-12))


def _span(picture: Image.Image) -> _Span:
    """The range of 32-bit integers, which may hold 16-bit values, or of floats; None for all other pictures."""
    if picture.mode not in ("I", "F"):
        return None
    low = high = np.nan
    for box in _blocks(*picture.size):
        values = np.asarray(picture.crop(box))
        low, high = np.fmin(low, np.fmin.reduce(values, axis=None)), np.fmax(high, np.fmax.reduce(values, axis=None))
    return float(low), float(high)


def _on_white(picture: Image.Image) -> Image.Image:
    """Transparent pixels laid on white."""
    if picture.mode in ("LA", "PA", "RGBA", "RGBa", "La") or "transparency" in picture.info:
        rgba = picture.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", rgba.size, "white"), rgba)
    return picture


def _scale_to_8_bits(values: NDArray[Any], full: float) -> NDArray[np.uint8]:
    return (values * (255.0 / full) + 0.5).astype(np.uint8)


def jpeg_thumbnail(path: str | PathLike[str], longest_side: int) -> bytes:
    """A small upright copy of a picture file, in colour, as the bytes of a JPEG file."""
    with open_bytes(path) as data:
        picture = Image.fromarray(decode_color(data, longest_side, name=str(path)))
    picture.thumbnail((longest_side, longest_side))
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=80)
    return buffer.getvalue()

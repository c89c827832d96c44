"""Read a picture, make it gray or RGB, resize it: the only place where a picture file is opened."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, ImageFile, UnidentifiedImageError

from lnbnn.errors import ImageReadError, InvalidInputError
from lnbnn.files import picture_memory
from lnbnn.files.picture_memory import MAX_PIXELS, bytes_to_decode, bytes_to_open, reduction, return_free_memory

__all__ = [
    "IMAGE_FORMATS",
    "IMAGE_SUFFIXES",
    "decode",
    "jpeg_thumbnail",
    "open_bytes",
    "read_bytes",
    "read_gray",
    "resize",
    "to_pixels",
    "white_level",
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
"""Supported formats, by Pillow's names, each with its file extensions. No other decoder ever sees a file."""

IMAGE_SUFFIXES = frozenset(suffix for suffixes in IMAGE_FORMATS.values() for suffix in suffixes)
"""File extensions of pictures when a folder is listed (lower case)."""

_MAX_FILE_BYTES = 512 << 20

_SIGNIFICANT_BITS = (8, 10, 12, 14, 16)  # that cameras put into 16
_STATE_THEIR_RANGE = ("PPM", "JPEG2000")  # Pillow has stretched their values to 16 bits by what the file says

_Span: TypeAlias = tuple[float, float] | None  # the values that become black and white, where they are not 0 and 255


def read_bytes(path: str | PathLike[str]) -> bytes:
    """The content of a picture file; every failure becomes one clear :class:`ImageReadError`."""
    path = Path(path)
    try:
        if path.exists() and not path.is_file():
            kind = "a folder" if path.is_dir() else "something else"
            raise ImageReadError(f"{path}: expected an image file, got {kind}.")
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise ImageReadError(f"{path}: larger than {_MAX_FILE_BYTES >> 20} MiB; shrink it first.")
        data = path.read_bytes()
    except FileNotFoundError:
        raise ImageReadError(f"{path}: no such file.") from None
    except ImageReadError:
        raise
    except OSError as error:
        raise ImageReadError(f"{path}: cannot be read ({error.strerror or error}); check its permissions.") from error
    except ValueError as error:  # a NUL, or characters that no file name can have
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
    with picture_memory.READING.hold(min(size, picture_memory.READING.n_bytes)):
        yield read_bytes(path)


def read_gray(path: str | PathLike[str], longest_side: int | None = None) -> NDArray[np.uint8]:
    """Read a picture file as a gray image, upright, with its longest side resized if given."""
    with open_bytes(path) as data:
        gray = decode(data, longest_side, name=str(path))
    return gray if longest_side is None else resize(gray, longest_side)


def decode(data: bytes, at_least: int | None = None, *, color: bool = False, name: str = "image") -> NDArray[np.uint8]:
    """Decode the bytes of a picture file.

    EXIF orientation is applied; transparent pixels become white; 16-bit values are scaled to 8 bits, as
    :func:`white_level` says; of an animation the first frame is used. All threads together take at most 704 MiB: a
    picture waits for its share.

    Parameters
    ----------
    data : bytes
        The file's content.
    at_least : int, optional
        The longest side that will be wanted, in pixels: a much larger JPEG, and any picture of more than 67 million
        pixels, may be decoded at a reduced size, at least twice that.
    color : bool, default=False
        RGB instead of gray.
    name : str
        What to call the picture in an error message.

    Returns
    -------
    ndarray of shape (height, width) or (height, width, 3), uint8
    """
    n_bytes, budget = 0, picture_memory.DECODING
    try:
        n_bytes = bytes_to_open(data)
        while True:  # at most twice: the second time with what the first found to be needed
            with budget.hold(n_bytes):
                pixels, n_bytes = _decode_within(n_bytes, data, at_least, color)
            if pixels is not None:
                return pixels
    except UnidentifiedImageError:
        raise ImageReadError(f"{name}: not a picture in a known format; convert it or leave it out.") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        limit = MAX_PIXELS // 1_000_000
        raise ImageReadError(f"{name}: more than {limit} million pixels; shrink the picture first.") from None
    except MemoryError:
        what = "too large for the available memory"
        if n_bytes > budget.n_bytes:
            what = f"decoding takes {n_bytes >> 20} MiB, more than the limit of {budget.n_bytes >> 20} MiB"
        raise ImageReadError(f"{name}: {what}; shrink the picture first.") from None
    except Exception as error:  # Pillow's decoders raise many types on a damaged file; each means the same to a user
        raise ImageReadError(f"{name}: damaged or cut short ({error}); copy it again or leave it out.") from (
            error.with_traceback(None)  # which would keep the picture
        )


def _decode_within(
    n_bytes: int, data: bytes, at_least: int | None, color: bool
) -> tuple[NDArray[np.uint8] | None, int]:
    """The pixels, upright, or None if that takes more than so many bytes; and what it takes."""
    try:
        with Image.open(io.BytesIO(data), formats=list(IMAGE_FORMATS)) as picture:
            if picture.width * picture.height > MAX_PIXELS:
                raise Image.DecompressionBombError
            n_needed = bytes_to_decode(picture, data, at_least, 3 if color else 1)
            low_bytes = _low_bytes_of(picture)
            if low_bytes and n_needed + 4 * picture.width * picture.height <= picture_memory.DECODING.n_bytes:
                n_needed += 4 * picture.width * picture.height
            else:
                low_bytes = []
            try:
                if n_needed > n_bytes:
                    return None, n_needed
                picture.load()
                if low_bytes:
                    _brighten_color(picture, data, low_bytes)
                turn = _UPRIGHT.get(picture.getexif().get(ExifTags.Base.Orientation, 1))
                is_small = picture.width * picture.height <= picture_memory.BLOCK_PIXELS
                make = _pixels_of if is_small else partial(_pixels_by_blocks, at_least=at_least)
                pixels = make(picture, color=color, span=_span(picture))
                return pixels if turn is None else np.ascontiguousarray(turn(pixels)), n_needed
            finally:
                picture.close()
                del picture
    finally:
        if n_bytes > picture_memory.USUAL_BYTES:
            return_free_memory()


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


def _pixels_by_blocks(picture: Image.Image, at_least: int | None, color: bool, span: _Span) -> NDArray[np.uint8]:
    """Those of a large picture, so that no second copy of it is made."""
    width, height = picture.size
    factor = reduction(width * height, max(width, height), at_least)
    result = np.empty((-(-height // factor), -(-width // factor), *([3] if color else [])), np.uint8)
    for left, top, right, bottom in _blocks(width, height):
        size = -(-(right - left) // factor), -(-(bottom - top) // factor)
        x, y = left // factor, top // factor
        block = _pixels_of(picture.crop((left, top, right, bottom)), color, span)
        result[y : y + size[1], x : x + size[0]] = resize(block, size)
    return result


def _blocks(width: int, height: int) -> Iterator[tuple[int, int, int, int]]:
    """Boxes that cover a picture, row after row; they start at multiples of 8."""
    n_columns = min(width, picture_memory.BLOCK_PIXELS // 8)
    n_rows = picture_memory.BLOCK_PIXELS // n_columns // 8 * 8
    for top in range(0, height, n_rows):
        for left in range(0, width, n_columns):
            yield left, top, min(left + n_columns, width), min(top + n_rows, height)


def _pixels_of(picture: Image.Image, color: bool, span: _Span = None) -> NDArray[np.uint8]:
    """Gray or RGB values; transparent pixels become white."""
    if picture.mode in ("I", "F") or picture.mode.startswith(
        "I;16"
    ):  # more than 8 bits per pixel, which is always gray
        gray = _in_8_bits(picture, span)
        return np.stack([gray] * 3, axis=-1) if color else gray
    if picture.mode in ("LA", "PA", "RGBA", "RGBa", "La") or "transparency" in picture.info:
        rgba = picture.convert("RGBA")
        picture = Image.alpha_composite(Image.new("RGBA", rgba.size, "white"), rgba)
    return np.asarray(picture.convert("RGB" if color else "L"))


def _in_8_bits(picture: Image.Image, span: _Span) -> NDArray[np.uint8]:
    black, white = span or _span(picture) or (0.0, 0.0)
    if not np.isfinite(white - black):
        raise ValueError("the pixels are not finite numbers")
    values = np.asarray(picture)
    if picture.mode.startswith("I;16"):
        return _scale_to_8_bits(values, white)
    values = values.astype(np.float64)
    return _scale_to_8_bits(np.nan_to_num(values, nan=black) - black, max(white - black, 1e-12))


def _span(picture: Image.Image) -> _Span:
    """What becomes black and white in a picture of more than 8 bits per pixel; None for all others."""
    is_16_bit = picture.mode.startswith("I;16")
    if not is_16_bit and picture.mode not in ("I", "F"):
        return None
    if picture.format in _STATE_THEIR_RANGE and picture.mode != "F":
        return 0.0, 65535.0
    low = high = np.nan
    for box in _blocks(*picture.size):
        values = np.asarray(picture.crop(box))
        low, high = np.fmin(low, np.fmin.reduce(values, axis=None)), np.fmax(high, np.fmax.reduce(values, axis=None))
    if is_16_bit or (picture.mode == "I" and low >= 0 and high <= 65535):
        return 0.0, float(white_level(int(high)))
    return float(low), float(high)


def white_level(largest: int) -> int:
    """The 16-bit value that becomes white, given the largest in the picture.

    Cameras and microscopes put 10, 12 or 14 bits into 16: taken for 16, such a picture is nearly black. So white is the
    largest number of 8, 10, 12, 14 or 16 bits, whichever holds the largest value first. A picture of true 16 bits stays
    the same unless all of it is darker than a quarter of white; then it is brightened, by 4, 16, 64 or 256.

    Examples
    --------
    >>> [white_level(largest) for largest in (255, 256, 4095, 16383, 16384, 65535)]
    [255, 1023, 4095, 16383, 65535, 65535]
    """
    return next(white for bits in _SIGNIFICANT_BITS if largest <= (white := (1 << bits) - 1))


_SWAPPED = {"16B": "16L", "16L": "16B", "16N": "16B" if sys.byteorder == "little" else "16L"}


def _low_bytes_of(picture: ImageFile.ImageFile) -> list[Any]:
    """How to decode the low bytes of a color picture of 16 bits, not yet loaded; empty for all others.

    Of such a picture Pillow gives the high bytes. With the byte order swapped, it gives the low ones.
    """
    tiles: list[Any] = []
    for tile in picture.tile:
        mode, *rest = tile.args if isinstance(tile.args, tuple) else (tile.args,)
        kind, _, order = str(mode).partition(";")
        if kind not in ("RGB", "RGBA") or order not in _SWAPPED:
            return []
        swapped = f"{kind};{_SWAPPED[order]}"
        tiles.append(tile._replace(args=(swapped, *rest) if isinstance(tile.args, tuple) else swapped))
    return tiles


def _brighten_color(picture: Image.Image, data: bytes, low_bytes: list[Any]) -> None:
    """Scale a color picture of fewer than 16 bits, of which Pillow has given the high bytes, in place."""
    ranges: Any = picture.getextrema()
    if max(high for _, high in ranges[:3]) >> 6:  # more than 14 bits are used
        return
    with Image.open(io.BytesIO(data), formats=list(IMAGE_FORMATS)) as low:
        low.tile = low_bytes
        low.load()

        def values(box: tuple[int, int, int, int], band: int) -> NDArray[np.integer]:
            high_byte, low_byte = (np.asarray(each.crop(box))[:, :, band].astype(np.int32) for each in (picture, low))
            return high_byte << 8 | low_byte

        white = white_level(max(int(values(box, band).max()) for box in _blocks(*picture.size) for band in range(3)))
        for box in _blocks(*picture.size):
            pixels = np.array(picture.crop(box))
            for band in range(3):
                pixels[:, :, band] = _scale_to_8_bits(values(box, band), white)
            picture.paste(Image.fromarray(pixels), box)


def _scale_to_8_bits(values: NDArray[Any], full: float) -> NDArray[np.uint8]:
    return (values * (255.0 / full) + 0.5).astype(np.uint8)


def to_pixels(image: NDArray[np.generic], *, color: bool = False) -> NDArray[np.uint8]:
    """A gray, or RGB, uint8 image from an array: (h, w) gray, (h, w, 3) RGB or (h, w, 4) RGBA.

    The values are uint8, uint16 (white is as :func:`white_level` says), bool, or float in 0..1.
    """
    array = np.asarray(image)
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if not (array.ndim == 2 or (array.ndim == 3 and array.shape[2] in (3, 4))) or 0 in array.shape:
        raise InvalidInputError(
            f"an image array must have shape (h, w), (h, w, 3) or (h, w, 4); got {array.shape}. "
            "Descriptors already extracted are passed as ImageFeatures."
        )
    if array.dtype == np.uint16:
        colors, alpha = (array, array[..., :0]) if array.ndim == 2 else (array[..., :3], array[..., 3:])
        colors = _scale_to_8_bits(colors, white_level(int(colors.max())))
        array = colors if alpha.size == 0 else np.dstack([colors, _scale_to_8_bits(alpha, 65535)])
    elif array.dtype.kind == "f":
        if not np.isfinite(array).all() or array.min() < 0.0 or array.max() > 1.0:
            raise InvalidInputError("a float image must hold values in 0..1; got values outside, NaN or infinity.")
        array = _scale_to_8_bits(array, 1.0)
    elif array.dtype == np.bool_:
        array = array.astype(np.uint8) * 255
    elif array.dtype != np.uint8:
        raise InvalidInputError(f"an image array must be uint8, uint16, bool or float; got dtype {array.dtype}.")
    array = np.ascontiguousarray(array)
    is_done = array.shape[2:] == ((3,) if color else ())
    return array if is_done else _pixels_of(Image.fromarray(array), color)


def resize(image: NDArray[np.uint8], size: int | tuple[int, int]) -> NDArray[np.uint8]:
    """Resize to (width, height) pixels, or to a longest side, keeping the aspect ratio (at least 1 px per side).

    Averages when the picture shrinks, interpolates when it grows.
    """
    height, width = image.shape[:2]
    if not isinstance(size, tuple):
        factor = size / max(height, width)
        size = max(1, round(width * factor)), max(1, round(height * factor))
    if (width, height) == size:
        return image
    shrinks = max(size) < max(width, height)
    return cv2.resize(image, size, interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR)


def jpeg_thumbnail(path: str | PathLike[str], longest_side: int) -> bytes:
    """A small upright copy of a picture file, in color, as the bytes of a JPEG file."""
    with open_bytes(path) as data:
        picture = Image.fromarray(decode(data, longest_side, color=True, name=str(path)))
    picture.thumbnail((longest_side, longest_side))
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=80)
    return buffer.getvalue()

"""Read a picture, make it gray or RGB, resize it: the only place where a picture file is opened."""

from __future__ import annotations

import io
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from lnbnn.errors import ImageReadError, InvalidInputError

__all__ = [
    "IMAGE_SUFFIXES",
    "MAX_PIXELS",
    "decode_color",
    "decode_gray",
    "jpeg_thumbnail",
    "read_bytes",
    "read_gray",
    "resize",
    "resize_longest",
    "to_color",
    "to_gray",
]

IMAGE_SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".bmp", ".dib", ".gif", ".tif", ".tiff", ".webp"}
    | {".pgm", ".ppm", ".pbm", ".pnm", ".jp2", ".avif", ".tga", ".ico"}
)
"""File name endings taken for pictures when a folder is listed (lower case)."""

MAX_PIXELS = 178_000_000
"""Largest picture that is decoded, in pixels (a 16,000 x 11,000 scan passes); above it a file is refused unread."""

MAX_FILE_BYTES = 1 << 30


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


def read_gray(path: str | PathLike[str], longest_side: int | None = None) -> NDArray[np.uint8]:
    """Read a picture file as a gray image, upright, with its longest side resized if asked for."""
    return decode_gray(read_bytes(path), longest_side, name=str(path))


def decode_gray(data: bytes, longest_side: int | None = None, *, name: str = "image") -> NDArray[np.uint8]:
    """Decode the bytes of a picture file into a gray image.

    EXIF orientation is applied; transparent pixels are laid on white; 16-bit values are scaled to 8 bits; of an
    animation the first frame is taken.

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
    larger JPEG may be decoded at a reduced size.
    """
    return _decode(data, at_least, name, _color_of_pillow)


def _decode(
    data: bytes, longest_side: int | None, name: str, convert: Callable[[Image.Image], NDArray[np.uint8]]
) -> NDArray[np.uint8]:
    try:
        with Image.open(io.BytesIO(data)) as picture:
            if picture.width * picture.height > MAX_PIXELS:
                raise Image.DecompressionBombError
            if longest_side is not None:
                # A JPEG can be decoded at 1/2, 1/4 or 1/8 size: keep at least twice the size that is wanted.
                picture.draft(None, (2 * longest_side, 2 * longest_side))
            return convert(ImageOps.exif_transpose(picture))
    except UnidentifiedImageError:
        raise ImageReadError(f"{name}: not a picture in a known format; convert it or leave it out.") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        limit = MAX_PIXELS // 1_000_000
        raise ImageReadError(f"{name}: more than {limit} million pixels; shrink the picture first.") from None
    except MemoryError:
        raise ImageReadError(f"{name}: too large for the memory at hand; shrink the picture first.") from None
    except Exception as error:  # Pillow's decoders raise many types on a damaged file; each means the same to a user
        raise ImageReadError(f"{name}: damaged or cut short ({error}); copy it again or leave it out.") from error


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


def _gray_of_pillow(picture: Image.Image) -> NDArray[np.uint8]:
    measured = _measurements(picture)
    return np.asarray(_on_white(picture).convert("L")) if measured is None else measured


def _color_of_pillow(picture: Image.Image) -> NDArray[np.uint8]:
    measured = _measurements(picture)
    return np.asarray(_on_white(picture).convert("RGB")) if measured is None else np.stack([measured] * 3, axis=-1)


def _measurements(picture: Image.Image) -> NDArray[np.uint8] | None:
    """A picture of more than 8 bits a pixel, which is always gray, in 8 bits; None for all others."""
    if picture.mode.startswith("I;16"):
        return _scale_to_8_bits(np.asarray(picture), 65535)
    if picture.mode not in ("I", "F"):
        return None
    values = np.asarray(picture, dtype=np.float64)  # no fixed range: 32-bit integers that hold 16-bit values, or floats
    if picture.mode == "I" and values.min() >= 0 and values.max() <= 65535:
        return _scale_to_8_bits(values, 65535)
    low, high = np.nanmin(values), np.nanmax(values)
    if not np.isfinite(high - low):
        raise ValueError("the pixels are not finite numbers")
    return _scale_to_8_bits(np.nan_to_num(values, nan=low) - low, max(high - low, 1e-12))


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
    data = read_bytes(path)
    try:
        with Image.open(io.BytesIO(data)) as picture:
            if picture.width * picture.height > MAX_PIXELS:
                raise Image.DecompressionBombError
            picture.draft("RGB", (2 * longest_side, 2 * longest_side))
            small = ImageOps.exif_transpose(picture).convert("RGBA")
            small.thumbnail((longest_side, longest_side))
            laid = Image.alpha_composite(Image.new("RGBA", small.size, "white"), small).convert("RGB")
            buffer = io.BytesIO()
            laid.save(buffer, "JPEG", quality=80)
    except Exception as error:  # as in decode_gray
        raise ImageReadError(f"{path}: cannot be shown ({error}).") from error
    return buffer.getvalue()

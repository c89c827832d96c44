"""Read a picture, make it gray, resize it: the only place where a picture file is opened."""

from __future__ import annotations

import io
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
    "decode_gray",
    "jpeg_thumbnail",
    "read_bytes",
    "read_gray",
    "resize_longest",
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
    try:
        with Image.open(io.BytesIO(data)) as picture:
            if picture.width * picture.height > MAX_PIXELS:
                raise Image.DecompressionBombError
            if longest_side is not None:
                # A JPEG can be decoded at 1/2, 1/4 or 1/8 size: keep at least twice the size that is wanted.
                picture.draft(None, (2 * longest_side, 2 * longest_side))
            gray = _gray_of_pillow(ImageOps.exif_transpose(picture))
    except UnidentifiedImageError:
        raise ImageReadError(f"{name}: not a picture in a known format; convert it or leave it out.") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        limit = MAX_PIXELS // 1_000_000
        raise ImageReadError(f"{name}: more than {limit} million pixels; shrink the picture first.") from None
    except MemoryError:
        raise ImageReadError(f"{name}: too large for the memory at hand; shrink the picture first.") from None
    except Exception as error:  # Pillow's decoders raise many types on a damaged file; each means the same to a user
        raise ImageReadError(f"{name}: damaged or cut short ({error}); copy it again or leave it out.") from error
    return gray if longest_side is None else resize_longest(gray, longest_side)


def to_gray(image: NDArray[np.generic]) -> NDArray[np.uint8]:
    """A gray uint8 image from an array: (h, w) gray, (h, w, 3) RGB or (h, w, 4) RGBA.

    The values are uint8, uint16, bool, or float in 0..1.
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
        array = _scale_to_8_bits(array, 65535)
    elif array.dtype.kind == "f":
        if not np.isfinite(array).all() or array.min() < 0.0 or array.max() > 1.0:
            raise InvalidInputError("a float image must hold values in 0..1; got values outside, NaN or infinity.")
        array = _scale_to_8_bits(array, 1.0)
    elif array.dtype == np.bool_:
        array = array.astype(np.uint8) * 255
    elif array.dtype != np.uint8:
        raise InvalidInputError(f"an image array must be uint8, uint16, bool or float; got dtype {array.dtype}.")
    if array.ndim == 2:
        return np.ascontiguousarray(array)
    return _gray_of_pillow(Image.fromarray(np.ascontiguousarray(array)))


def resize_longest(gray: NDArray[np.uint8], longest_side: int) -> NDArray[np.uint8]:
    """Resize so that the longest side has ``longest_side`` pixels, keeping the aspect ratio (at least 1 px a side)."""
    height, width = gray.shape
    factor = longest_side / max(height, width)
    if factor == 1.0:
        return gray
    size = (max(1, round(width * factor)), max(1, round(height * factor)))
    return cv2.resize(gray, size, interpolation=cv2.INTER_AREA if factor < 1.0 else cv2.INTER_LINEAR)


def _gray_of_pillow(picture: Image.Image) -> NDArray[np.uint8]:
    if picture.mode.startswith("I;16"):
        return _scale_to_8_bits(np.asarray(picture), 65535)
    if picture.mode in ("I", "F"):  # no fixed range: 32-bit integers that hold 16-bit values, or measurements
        values = np.asarray(picture, dtype=np.float64)
        if picture.mode == "I" and values.min() >= 0 and values.max() <= 65535:
            return _scale_to_8_bits(values, 65535)
        low, high = np.nanmin(values), np.nanmax(values)
        if not np.isfinite(high - low):
            raise ValueError("the pixels are not finite numbers")
        return _scale_to_8_bits(np.nan_to_num(values, nan=low) - low, max(high - low, 1e-12))
    if picture.mode in ("LA", "PA", "RGBA", "RGBa", "La") or "transparency" in picture.info:
        rgba = picture.convert("RGBA")
        picture = Image.alpha_composite(Image.new("RGBA", rgba.size, "white"), rgba)
    return np.asarray(picture.convert("L"))


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

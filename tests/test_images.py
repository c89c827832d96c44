"""Pictures to gray arrays: every mode through a file, orientation, resizing, arrays."""

from __future__ import annotations

import io
import struct
import subprocess
import sys
import zlib

import cv2
import numpy as np
import pytest
from PIL import Image
from synthetic import noise_image, small_sift

from lnbnn.errors import ImageReadError, InvalidInputError
from lnbnn.files import images, picture_memory
from lnbnn.files.images import (
    IMAGE_FORMATS,
    IMAGE_SUFFIXES,
    decode,
    read_gray,
    resize,
    to_pixels,
)
from lnbnn.files.picture_memory import ByteBudget
from lnbnn.reading.extraction import iter_features

RED = round(0.299 * 255)  # ITU-R 601 luma of pure red: 76
GREEN = round(0.587 * 255)  # 150


def through_file(tmp_path, picture, name, **options):
    path = tmp_path / name
    picture.save(path, **options)
    return read_gray(path)


def assert_all(gray, value, tolerance=0):
    assert gray.dtype == np.uint8
    assert gray.ndim == 2
    assert np.abs(gray.astype(int) - value).max() <= tolerance, f"expected {value}, got {np.unique(gray)}"


# ---- one test a mode -------------------------------------------------------------------------------------------------


def test_mode_l(tmp_path):
    gray = noise_image(11, 7)
    assert np.array_equal(through_file(tmp_path, Image.fromarray(gray), "x.png"), gray)


def test_mode_rgb(tmp_path):
    assert_all(through_file(tmp_path, Image.new("RGB", (5, 4), (255, 0, 0)), "x.png"), RED)
    assert_all(through_file(tmp_path, Image.new("RGB", (5, 4), (0, 255, 0)), "x.png"), GREEN)


def test_mode_rgba_is_laid_on_white(tmp_path):
    assert_all(through_file(tmp_path, Image.new("RGBA", (5, 4), (255, 0, 0, 255)), "x.png"), RED)
    assert_all(through_file(tmp_path, Image.new("RGBA", (5, 4), (255, 0, 0, 0)), "x.png"), 255)
    # Half transparent black: 128 / 255 of black on white.
    assert_all(through_file(tmp_path, Image.new("RGBA", (5, 4), (0, 0, 0, 128)), "x.png"), 127, tolerance=1)


def test_mode_la_is_laid_on_white(tmp_path):
    assert_all(through_file(tmp_path, Image.new("LA", (5, 4), (40, 255)), "x.png"), 40)
    assert_all(through_file(tmp_path, Image.new("LA", (5, 4), (40, 0)), "x.png"), 255)


def test_mode_p_with_transparency(tmp_path):
    picture = Image.new("P", (4, 4), 0)
    picture.putpalette([255, 0, 0, 0, 255, 0])
    picture.paste(1, (0, 0, 2, 4))  # left half: color 1 (green), right half: color 0 (red)
    plain = through_file(tmp_path, picture, "plain.png")
    assert_all(plain[:, :2], GREEN)
    assert_all(plain[:, 2:], RED)
    for name in ("x.png", "x.gif"):
        clear = through_file(tmp_path, picture, name, transparency=0)
        assert_all(clear[:, :2], GREEN)
        assert_all(clear[:, 2:], 255)


def test_rgb_with_a_transparent_color(tmp_path):
    picture = Image.new("RGB", (4, 4), (255, 0, 0))
    picture.paste((0, 255, 0), (0, 0, 2, 4))
    gray = through_file(tmp_path, picture, "x.png", transparency=(255, 0, 0))
    assert_all(gray[:, :2], GREEN)
    assert_all(gray[:, 2:], 255)


@pytest.mark.parametrize(("ink", "expected"), [((0, 0, 0, 0), 255), ((0, 0, 0, 255), 0), ((0, 255, 255, 0), RED)])
@pytest.mark.parametrize("name", ["x.tif", "x.jpg"])
def test_mode_cmyk(tmp_path, ink, expected, name):
    assert_all(through_file(tmp_path, Image.new("CMYK", (16, 16), ink), name), expected, tolerance=3)


@pytest.mark.parametrize("name", ["x.png", "x.tif"])
def test_mode_16_bit_is_scaled(tmp_path, name):
    values = np.array([[0, 257 * 10, 257 * 200, 65535]], np.uint16)
    assert through_file(tmp_path, Image.fromarray(values), name).tolist() == [[0, 10, 200, 255]]


@pytest.mark.parametrize("name", ["x.png", "x.tif"])
@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0, 1, 128, 255], [0, 1, 128, 255]),  # 8 bits, the largest number that they hold
        ([0, 256, 1023], [0, 64, 255]),  # 10 bits: 256 * 255 / 1023 = 63.8
        ([0, 1024, 1024], [0, 64, 64]),  # one more than 10 bits hold: 12, and 1024 * 255 / 4095 = 63.8
        ([0, 2048, 4095], [0, 128, 255]),  # 12 bits: 2048 * 255 / 4095 = 127.5, rounded up
        ([0, 4096, 16383], [0, 64, 255]),  # 14 bits
        ([0, 8192, 16384], [0, 32, 64]),  # 16 bits, a quarter of white: as it is
        ([0, 0, 0], [0, 0, 0]),
    ],
)
def test_fewer_bits_in_16_are_not_black(tmp_path, name, values, expected):
    picture = np.array([values], np.uint16)
    assert through_file(tmp_path, Image.fromarray(picture), name).tolist() == [expected]
    assert to_pixels(picture).tolist() == [expected]
    assert through_file(tmp_path, Image.fromarray(picture.astype(np.int32)), "32.tif").tolist() == [expected]


COLORS_16 = {  # as 16-bit RGB, and what becomes of them
    "12 bits": ([[0, 2048, 4095], [1024, 3, 4095]], [[0, 128, 255], [64, 0, 255]]),  # 3 * 255 / 4095 = 0.19
    "14 bits": ([[0, 4096, 16383], [8192, 50, 8192]], [[0, 64, 255], [128, 1, 128]]),  # 50 * 255 / 16383 = 0.78
    "16 bits": ([[0, 0x1234, 0x4000], [0x8000, 0xFF, 0xFF00]], [[0, 0x12, 0x40], [0x80, 0, 0xFF]]),  # high bytes
}


@pytest.mark.parametrize("bits", COLORS_16)
@pytest.mark.parametrize("suffix", [".png", ".tiff"])
@pytest.mark.parametrize("compression", [1, 5])  # TIFF: none, LZW
@pytest.mark.parametrize("alpha", [False, True])
def test_fewer_bits_in_16_bit_color(tmp_path, bits, suffix, compression, alpha):
    values, expected = (np.array([rows]) for rows in COLORS_16[bits])
    values = values.astype(np.uint16)[:, :, ::-1]  # OpenCV's order
    if alpha:
        values = np.dstack([values, np.full(values.shape[:2], 65535, np.uint16)])
    options = [cv2.IMWRITE_TIFF_COMPRESSION, compression] if suffix == ".tiff" else []
    data = cv2.imencode(suffix, values, options)[1].tobytes()
    assert decode(data, color=True).tolist() == expected.tolist()
    if bits != "16 bits":  # where arrays are rounded
        rgb = values[:, :, [2, 1, 0, 3] if alpha else [2, 1, 0]]
        assert to_pixels(rgb, color=True).tolist() == expected.tolist()


def test_16_bit_color_by_blocks(monkeypatch):
    values = np.full((64, 64, 3), 200, np.uint16)
    values[40:] = 1000
    values[-1, -1] = 4095
    data = cv2.imencode(".png", values)[1].tobytes()
    whole = decode(data, color=True)
    assert (whole[0, 0, 0], whole[40, 0, 0], whole[-1, -1, 0]) == (12, 62, 255)
    monkeypatch.setattr(picture_memory, "BLOCK_PIXELS", 1024)
    assert np.array_equal(decode(data, color=True), whole)


def test_12_bits_in_the_blocks_of_a_large_picture(tmp_path, monkeypatch):
    # The largest value, in the last block, decides for all: a block by itself would be scaled as one of 8 or 10 bits.
    picture = np.full((64, 64), 200, np.uint16)
    picture[40:] = 1000
    picture[-1, -1] = 4095
    monkeypatch.setattr(picture_memory, "BLOCK_PIXELS", 1024)
    gray = through_file(tmp_path, Image.fromarray(picture), "x.png")
    assert (gray[0, 0], gray[40, 0], gray[-1, -1]) == (12, 62, 255)  # 255 / 4095 times 200: 12.45; times 1000: 62.3


def test_a_format_that_states_its_range_stays_dark(tmp_path):
    path = tmp_path / "x.pgm"  # values of 0 to 4095 stand for black to white; this picture has no brighter one than 400
    path.write_bytes(b"P5\n2 1\n4095\n" + np.array([0, 400], ">u2").tobytes())
    assert read_gray(path).tolist() == [[0, 25]]  # 400 * 255 / 4095 = 24.9


def test_mode_16_bit_big_endian(tmp_path):
    header = b"P5\n2 1\n65535\n"
    path = tmp_path / "x.pgm"
    path.write_bytes(header + np.array([257 * 10, 65535], ">u2").tobytes())
    assert read_gray(path).tolist() == [[10, 255]]


def test_mode_1(tmp_path):
    picture = Image.fromarray(np.array([[True, False], [False, True]]))
    assert picture.mode == "1"
    assert through_file(tmp_path, picture, "x.png").tolist() == [[255, 0], [0, 255]]


def test_mode_i_with_16_bit_values(tmp_path):
    values = np.array([[0, 257 * 10, 65535]], np.int32)
    assert through_file(tmp_path, Image.fromarray(values), "x.tif").tolist() == [[0, 10, 255]]


def test_mode_i_beyond_16_bits_is_stretched(tmp_path):
    values = np.array([[-1000, 0, 1000]], np.int32)
    assert through_file(tmp_path, Image.fromarray(values), "x.tif").tolist() == [[0, 128, 255]]


def test_mode_f_is_stretched(tmp_path):
    values = np.array([[-2.0, 0.0, 2.0]], np.float32)
    assert through_file(tmp_path, Image.fromarray(values), "x.tif").tolist() == [[0, 128, 255]]


def test_mode_f_with_nan_and_constant(tmp_path):
    values = np.array([[0.0, np.nan, 1.0]], np.float32)
    assert through_file(tmp_path, Image.fromarray(values), "x.tif").tolist() == [[0, 0, 255]]
    constant = np.full((2, 2), 7.5, np.float32)
    assert through_file(tmp_path, Image.fromarray(constant), "x.tif").tolist() == [[0, 0], [0, 0]]


def test_mode_f_with_infinity_is_refused(tmp_path):
    path = tmp_path / "x.tif"
    Image.fromarray(np.array([[0.0, np.inf]], np.float32)).save(path)
    with pytest.raises(ImageReadError, match=r"x\.tif: damaged or cut short \(the pixels are not finite"):
        read_gray(path)


def test_first_frame_of_an_animation(tmp_path):
    frames = [Image.new("L", (4, 4), value) for value in (10, 200)]
    assert_all(through_file(tmp_path, frames[0], "x.gif", save_all=True, append_images=frames[1:]), 10)


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".bmp", ".gif", ".tif", ".webp", ".ppm", ".tga"])
def test_common_formats(tmp_path, suffix):
    assert suffix in IMAGE_SUFFIXES
    assert_all(through_file(tmp_path, Image.new("RGB", (32, 16), (120, 120, 120)), f"x{suffix}"), 120, tolerance=2)


# ---- orientation -----------------------------------------------------------------------------------------------------

# How the stored picture must be turned to stand upright, from the EXIF standard.
UPRIGHT = {
    1: lambda stored: stored,
    2: lambda stored: stored[:, ::-1],
    3: lambda stored: stored[::-1, ::-1],
    4: lambda stored: stored[::-1],
    5: lambda stored: stored.T,
    6: lambda stored: np.rot90(stored, -1),
    7: lambda stored: np.rot90(stored, 2).T,
    8: lambda stored: np.rot90(stored),
}


@pytest.mark.parametrize("orientation", sorted(UPRIGHT))
@pytest.mark.parametrize("longest_side", [None, 32])
def test_exif_orientation_is_applied(tmp_path, orientation, longest_side):
    # Four gray squares of 16 px that are all different: every turn and mirror image can be told apart.
    stored = np.kron(np.array([[10, 90, 90], [170, 250, 10]], np.uint8), np.ones((16, 16), np.uint8))
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / "x.jpg"
    Image.fromarray(stored).save(path, quality=100, exif=exif)
    expected = UPRIGHT[orientation](stored)
    gray = read_gray(path, longest_side)
    if longest_side is not None:
        expected = cv2.resize(np.ascontiguousarray(expected), gray.shape[::-1], interpolation=cv2.INTER_AREA)
    assert gray.shape == expected.shape
    assert np.abs(gray.astype(int) - expected).max() <= 3


# ---- resizing --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("height", "width", "longest", "shape"),
    [
        (100, 200, 300, (150, 300)),  # up
        (200, 100, 300, (300, 150)),
        (900, 600, 300, (300, 200)),  # down
        (300, 120, 300, (300, 120)),  # as it is
        (1000, 7, 300, (300, 2)),
        (1, 5000, 300, (1, 300)),  # never less than a pixel
    ],
)
def test_resize_keeps_the_aspect_ratio(height, width, longest, shape):
    assert resize(noise_image(height, width), longest).shape == shape


def test_resize_of_the_same_size_changes_nothing():
    gray = noise_image(30, 20)
    assert np.array_equal(resize(gray, 30), gray)


def test_shrinking_takes_the_mean():
    gray = np.kron(np.array([[0, 200]], np.uint8), np.ones((4, 4), np.uint8))
    assert resize(gray, 2).tolist() == [[0, 200]]
    checks = (np.indices((8, 8)).sum(axis=0) % 2 * 200).astype(np.uint8)
    assert_all(resize(checks, 4), 100)


def test_large_jpeg_is_decoded_small_and_right(tmp_path):
    # A JPEG is decoded at a fraction of its size when that is enough; a smooth picture looks the same.
    rows, columns = np.mgrid[0:1200, 0:1600]
    gray = (columns * 200 // 1600 + rows * 50 // 1200).astype(np.uint8)
    path = tmp_path / "x.jpg"
    Image.fromarray(gray).save(path, quality=95)
    small = read_gray(path, 300)
    assert small.shape == (225, 300)
    assert np.abs(small.astype(int) - resize(gray, 300)).max() <= 3


def test_decode_equals_read(tmp_path):
    path = tmp_path / "x.png"
    Image.fromarray(noise_image(40, 30)).save(path)
    assert np.array_equal(resize(decode(path.read_bytes(), 25), 25), read_gray(path, 25))
    assert read_gray(path, 25).shape == (25, 19)


# ---- arrays ----------------------------------------------------------------------------------------------------------


def test_to_gray_of_every_dtype():
    gray = np.array([[0, 10], [200, 255]], np.uint8)
    assert np.array_equal(to_pixels(gray), gray)
    assert np.array_equal(to_pixels(gray.astype(np.uint16) * 257), gray)
    for dtype in (np.float64, np.float32):
        assert np.array_equal(to_pixels((gray / 255).astype(dtype)), gray)
    assert to_pixels(np.array([[True, False]])).tolist() == [[255, 0]]
    assert to_pixels(gray[:, :, None]).shape == (2, 2)


def test_to_gray_of_color():
    red = np.zeros((3, 4, 3), np.uint8)
    red[..., 0] = 255
    assert_all(to_pixels(red), RED)
    assert_all(to_pixels(red / 255.0), RED)
    assert_all(to_pixels(red.astype(np.uint16) * 257), RED)
    clear = np.dstack([red, np.zeros((3, 4), np.uint8)])
    assert_all(to_pixels(clear), 255)
    solid = np.dstack([red, np.full((3, 4), 255, np.uint8)])
    assert_all(to_pixels(solid), RED)


def test_to_gray_of_a_strided_array():
    image = noise_image(20, 30)
    gray = to_pixels(image[::2, ::-3])
    assert gray.flags.c_contiguous
    assert np.array_equal(gray, image[::2, ::-3])


def test_to_gray_does_not_change_its_input():
    for image in (noise_image(5, 5), noise_image(5, 5) / 255.0, np.dstack([noise_image(5, 5)] * 4)):
        before = image.copy()
        image.flags.writeable = False
        to_pixels(image)
        assert np.array_equal(image, before)


@pytest.mark.parametrize("shape", [(5,), (5, 5, 2), (5, 5, 5), (2, 5, 5, 3), (0, 5), (5, 0), (0, 5, 3), ()])
def test_to_gray_refuses_shapes(shape):
    with pytest.raises(InvalidInputError, match=r"must have shape \(h, w\), \(h, w, 3\) or \(h, w, 4\); got"):
        to_pixels(np.zeros(shape, np.uint8))


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32, np.int8, complex, object, "U3"])
def test_to_gray_refuses_dtypes(dtype):
    with pytest.raises(InvalidInputError, match="must be uint8, uint16, bool or float; got dtype"):
        to_pixels(np.ones((4, 4)).astype(dtype))


@pytest.mark.parametrize("value", [-0.1, 1.1, 255.0, np.nan, np.inf])
def test_to_gray_refuses_float_values(value):
    image = np.full((4, 4), 0.5)
    image[1, 2] = value
    with pytest.raises(InvalidInputError, match=r"values in 0\.\.1"):
        to_pixels(image)


def test_error_names_the_picture():
    buffer = io.BytesIO(b"this is no picture")
    with pytest.raises(ImageReadError, match=r"^holiday: not a picture in a known format"):
        decode(buffer.getvalue(), name="holiday")


# ---- only the formats that are promised ------------------------------------------------------------------------------

Image.init()
OTHER_FORMATS = sorted(set(Image.OPEN) - set(IMAGE_FORMATS))


@pytest.mark.parametrize("suffix", sorted(IMAGE_SUFFIXES))
def test_every_ending_belongs_to_a_format_that_is_read(suffix):
    assert Image.registered_extensions()[suffix] in IMAGE_FORMATS


@pytest.mark.parametrize("name", OTHER_FORMATS)
def test_no_other_decoder_sees_a_file(monkeypatch, name):
    def opener(file, filename):
        pytest.fail(f"{name} was asked to open a file")

    monkeypatch.setitem(Image.OPEN, name, (opener, lambda prefix: True))
    with pytest.raises(ImageReadError, match="not a picture in a known format"):
        decode(b"bytes of no promised format " * 40)


@pytest.mark.filterwarnings("ignore:.* image format is deprecated:DeprecationWarning")
@pytest.mark.parametrize("name", [name for name in OTHER_FORMATS if name in Image.SAVE])
def test_content_of_other_formats_is_refused(name):
    buffer = io.BytesIO()
    for mode in ("RGB", "L", "1", "P", "RGBA", "F"):
        try:
            Image.new(mode, (32, 32)).save(buffer, name)
            break
        except (OSError, ValueError):  # not its mode, or a format that is only known by name
            continue
    with pytest.raises(ImageReadError, match=r"^x\.jpg: (not a picture|damaged)[^\n]*$"):
        decode(buffer.getvalue(), name="x.jpg")


def test_postscript_named_jpg_starts_no_program(tmp_path, monkeypatch):
    monkeypatch.setattr(subprocess, "Popen", lambda *args, **kwargs: pytest.fail("a program was started"))
    path = tmp_path / "x.jpg"
    path.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n%%EOF\n")
    with pytest.raises(ImageReadError, match=r"x\.jpg: not a picture in a known format"):
        read_gray(path)
    with pytest.raises(ImageReadError, match=r"x\.jpg: not a picture in a known format"):
        images.jpeg_thumbnail(path, 64)


# ---- memory ----------------------------------------------------------------------------------------------------------


def flat_png(width, height, color_type):
    """A picture of zeros, a thousandth of its size."""

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    row = bytes(1 + width * {0: 1, 2: 3, 6: 4}[color_type])
    header = struct.pack(">IIBBBBB", width, height, 8, color_type, 0, 0, 0)
    parts = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(row * height)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


def icon_of(png):
    return b"\0\0\1\0\1\0" + struct.pack("<BBBBHHII", 0, 0, 0, 0, 1, 32, len(png), 22) + png


def saved(picture, name, **options):
    buffer = io.BytesIO()
    picture.save(buffer, name, **options)
    return buffer.getvalue()


MEASURE = """
import resource, sys, warnings
from concurrent.futures import ThreadPoolExecutor
from lnbnn.files import images, picture_memory
from lnbnn.errors import ImageReadError
from lnbnn.files.picture_memory import ByteBudget

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10

def read(path):
    try:
        return images.read_gray(path, 300).shape
    except ImageReadError as error:
        return str(error)

picture_memory.DECODING, picture_memory._REDUCE_ABOVE = ByteBudget(128 << 20), 1 << 23
picture_memory._GIF_OPEN_BYTES = 32 << 20
read(sys.argv[1])
before = peak()
with ThreadPoolExecutor(6) as pool:
    print(list(pool.map(read, 3 * sys.argv[2:])))
print(peak() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="measures in KiB, as Linux does")
def test_peak_memory_of_all_threads_together(tmp_path):
    wide, high = 5000, 4000
    contents = {
        "small.png": flat_png(10, 10, 0),
        "rgb.png": flat_png(wide, high, 2),
        "rgba.png": flat_png(wide, high, 6),
        "float.tif": saved(Image.new("F", (wide, high)), "TIFF", compression="tiff_adobe_deflate"),
        "strip.tif": saved(Image.new("L", (wide, high)), "TIFF", compression="tiff_lzw", tiffinfo={278: high}),
        "disposed.gif": saved(Image.new("P", (wide, high)), "GIF", disposal=2, transparency=0),
        "progressive.jpg": saved(Image.new("RGB", (wide, high)), "JPEG", progressive=True),
        "icon.ico": icon_of(flat_png(wide, high, 6)),
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    paths = [str(tmp_path / name) for name in contents]
    ran = subprocess.run([sys.executable, "-c", MEASURE, *paths], capture_output=True, text=True, check=True)
    answers, peak = ran.stdout.splitlines()
    assert answers.count("(240, 300)") == 18
    assert answers.count("icon.ico: decoding takes") == 3
    assert int(peak) < 128 + 48


def test_the_icon_of_a_huge_picture_is_refused_unread():
    data = icon_of(flat_png(16_000, 11_000, 0))
    with pytest.raises(ImageReadError, match=r"^x: decoding takes \d+ MiB, more than the limit of 704 MiB; shrink"):
        decode(data, 300, name="x")


@pytest.mark.parametrize(("form", "options"), [("JPEG", {"progressive": True}), ("WEBP", {}), ("AVIF", {"speed": 10})])
def test_what_a_decoder_takes_beside_the_pixels_counts(monkeypatch, form, options):
    picture = Image.new("RGB", (2000, 1500), "gray")  # 12 MB as Pillow stores it
    monkeypatch.setattr(picture_memory, "DECODING", ByteBudget(35 << 20))
    assert decode(saved(picture, "PNG")).shape == (1500, 2000)
    with pytest.raises(ImageReadError, match="more than the limit of 35 MiB"):
        decode(saved(picture, form, **options))


def test_a_jpeg2000_too_large_is_decoded_at_a_reduced_size(monkeypatch):
    rows, columns = np.mgrid[0:1200, 0:1600]
    gray = (columns * 200 // 1600 + rows * 50 // 1200).astype(np.uint8)
    data = saved(Image.fromarray(gray), "JPEG2000")
    whole = resize(decode(data, 300), 300)
    monkeypatch.setattr(picture_memory, "DECODING", ByteBudget(24 << 20))
    with pytest.raises(ImageReadError, match="more than the limit of 24 MiB"):
        decode(data)
    small = resize(decode(data, 300), 300)
    assert small.shape == whole.shape
    assert np.abs(small.astype(int) - whole).max() <= 3


MODES = ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16", "I", "F"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("size", [(1201, 407), (1, 300_001), (300_001, 1)])
def test_blocks_make_no_difference(monkeypatch, mode, size):
    values = noise_image(size[1], size[0])
    picture = Image.fromarray(values.astype(np.float32) - 7 if mode == "F" else values.astype(np.int32) * 900)
    if mode not in ("I", "F"):
        picture = Image.fromarray(values.astype(np.uint16) * 200 if mode == "I;16" else values)
        picture = picture if mode == "I;16" else picture.convert("RGB").convert(mode)
    data = saved(picture, "TIFF")
    in_blocks = [decode(data, side, color=color) for color in (False, True) for side in (None, 100)]
    monkeypatch.setattr(picture_memory, "BLOCK_PIXELS", 1 << 40)
    at_once = [decode(data, side, color=color) for color in (False, True) for side in (None, 100)]
    for one, other in zip(in_blocks, at_once, strict=True):
        assert np.array_equal(one, other)


@pytest.mark.parametrize("orientation", [1, 6])
def test_a_huge_picture_is_reduced_as_it_is_converted(monkeypatch, orientation):
    rows, columns = np.mgrid[0:803, 0:1207]
    gray = (columns * 200 // 1207 + rows * 50 // 803).astype(np.uint8)
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = saved(Image.fromarray(gray), "PNG", exif=exif)
    plain, color = resize(decode(data, 100), 100), decode(data, 100, color=True)
    monkeypatch.setattr(picture_memory, "_REDUCE_ABOVE", 1 << 18)
    reduced = resize(decode(data, 100), 100)
    assert reduced.shape == plain.shape
    assert np.abs(reduced.astype(int) - plain).max() <= 1
    assert max(decode(data, 100, color=True).shape) == -(-max(color.shape) // 4)


def test_an_error_keeps_neither_picture_nor_file(tmp_path):
    path = tmp_path / "x.tif"
    Image.fromarray(np.full((10, 10), np.inf, np.float32)).save(path)
    (error,) = iter_features([path], small_sift())
    assert isinstance(error, ImageReadError)
    while error is not None:
        assert error.__traceback__ is None
        error = error.__cause__

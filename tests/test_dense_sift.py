"""Dense SIFT: cases to check by hand, the grid by formula, invariances, and a slow reference written from the text."""

from __future__ import annotations

import math

import cv2
import numpy as np
import pytest
from synthetic import noise_image

from lnbnn import DenseSIFT
from lnbnn.descriptors import make_descriptor
from lnbnn.errors import InvalidInputError, UnknownNameError


def extract(image, **settings):
    """Descriptors as (n, row of bin, column of bin, orientation), and the features; the image keeps its size."""
    settings = {"bin_sizes": (4,), "step_px": 6, "min_contrast": 0.0, "longest_side": max(image.shape[:2]), **settings}
    features = DenseSIFT(**settings).extract(image)
    return features.descriptors.reshape(-1, 4, 4, 8), features


def centers_px(features):
    return features.xy * np.float32(features.size)


# ---- cases to check by hand ------------------------------------------------------------------------------------------


def test_vertical_step_edge_fills_one_orientation():
    # Dark left, light right: the gradient points right (angle 0) in every row, so only orientation 0 has mass.
    image = np.zeros((40, 40), np.uint8)
    image[:, 20:] = 255
    bins, features = extract(image)
    assert len(features) == 20  # a grid of 5 x 5, of which the first column sees no gradient at all
    assert bins[..., 0].any()
    assert not bins[..., 1:].any()


def test_only_bins_beside_the_edge_have_mass():
    # Bin centers of the frame at x0 are x0, x0 + 4, x0 + 8, x0 + 12, and each reaches 3 px to both sides. The edge,
    # blurred by sigma 0.66 (a kernel of 5 px), has gradients at columns 17..22 only. In the first frame (x0 = 0) the
    # bins reach to columns 3, 7, 11 and 15: all empty. In the second (x0 = 6) they reach 3..9, 7..13, 11..17 and
    # 15..21: the third has at most the outermost trace of column 17, the fourth the edge itself.
    image = np.zeros((40, 40), np.uint8)
    image[:, 20:] = 255
    bins, features = extract(image)
    x = centers_px(features)[:, 0] - 6
    second = bins[np.isclose(x, 6)]
    assert len(second) == 5
    assert not second[:, :, :2].any()
    assert (second[:, :, 3, 0] > 20).all()
    assert (second[:, :, 2, 0] < second[:, :, 3, 0]).all()
    assert not np.isclose(x, 0).any(), "the first column of frames sees no gradient and is left out"


@pytest.mark.parametrize(
    ("image_of", "orientation"),
    [
        (lambda edge: edge, 0),  # light to the right
        (lambda edge: edge.T, 2),  # light below: y points down
        (lambda edge: edge[:, ::-1], 4),  # light to the left
        (lambda edge: edge.T[::-1], 6),  # light above
    ],
)
def test_orientation_of_the_four_edges(image_of, orientation):
    edge = np.zeros((41, 41), np.uint8)
    edge[:, 20:] = 200
    bins, _ = extract(np.ascontiguousarray(image_of(edge)))
    assert np.flatnonzero(bins.any(axis=(0, 1, 2))).tolist() == [orientation]


def test_diagonal_ramp_fills_the_orientation_at_45_degrees():
    rows, columns = np.mgrid[0:60, 0:60]
    bins, features = extract((2 * (rows + columns)).astype(np.uint8))
    inner = (np.abs(centers_px(features) - 30) < 12).all(axis=1)
    assert np.flatnonzero(bins[inner].any(axis=(0, 1, 2))).tolist() == [1]


def test_orientation_between_two_bins_is_shared_linearly():
    # Gradient (2, 1): 26.565 degrees = 0.5903 of the 45 degrees between orientations 0 and 1.
    # Shares of the magnitude: 0.4097 and 0.5903. Unclipped they keep that ratio; the clip at 0.2 only levels it.
    rows, columns = np.mgrid[0:60, 0:60]
    bins, features = extract((2 * columns + rows).astype(np.uint8))
    inner = bins[(np.abs(centers_px(features) - 30) < 12).all(axis=1)]
    assert np.flatnonzero(inner.any(axis=(0, 1, 2))).tolist() == [0, 1]
    corner = inner[:, 0, 0].astype(float)  # the smallest window weight: below the clip in both orientations
    share = corner[:, 1] / (corner[:, 0] + corner[:, 1])
    assert np.allclose(share, 0.5903, atol=0.02)


def test_horizontal_ramp_gives_one_descriptor_everywhere():
    # I = 2 x: the gradient is (2, 0) at every pixel, so bin (i, j) holds w_i w_j times one constant in orientation 0.
    # For bins of 4 px the window's means are w = 0.7445, 0.9415, 0.9415, 0.7445 (see the contrast test), and
    # w_i w_j / norm = 0.1924 in the corners, 0.2433 on the sides, 0.3076 in the middle.
    # Clipped at 0.2: 0.1924 and 0.2; norm sqrt(4 * 0.1924^2 + 12 * 0.2^2) = 0.7923.
    # int(127 * 0.1924 / 0.7923 + 0.5) = int(31.34) = 31 and int(127 * 0.2 / 0.7923 + 0.5) = int(32.56) = 32.
    image = np.tile((2 * np.arange(120)).astype(np.uint8), (40, 1))
    bins, features = extract(image)
    x = centers_px(features)[:, 0]
    inner = bins[(x > 20) & (x < 100)]
    assert len(inner) == 65
    assert not inner[..., 1:].any()
    expected = [[31, 32, 32, 31], [32, 32, 32, 32], [32, 32, 32, 32], [31, 32, 32, 31]]
    assert (inner[..., 0] == np.array(expected)).all()


@pytest.mark.parametrize("value", [0, 1, 128, 255])
@pytest.mark.parametrize("min_contrast", [0.0, 2.0])
def test_flat_image_has_no_descriptors(value, min_contrast):
    _, features = extract(np.full((40, 50), value, np.uint8), min_contrast=min_contrast)
    assert features.descriptors.shape == (0, 128)
    assert features.xy.shape == (0, 2)
    assert features.size == (50, 40)


@pytest.mark.parametrize("slope", [1, 2, 3])
def test_contrast_threshold_on_a_ramp_of_known_slope(slope):
    # Bins of 4 px. The triangle of height 1 and base 8 sums to 4 a side, so a bin sums to slope * 4 * 4 = 16 slope.
    # Window means over offsets -3..3 of exp(-((o - c) / 8)^2 / 2):  c = 2: 0.94155,  c = 6: 0.74451.
    # Sum over the 4 x 4 bins: 16 slope * (2 * 0.94155 + 2 * 0.74451)^2 = 16 slope * 3.37212^2 = 181.939 slope.
    # Contrast: that / (3 * 4 + 1)^2 = 1.07656 slope.
    image = np.tile((slope * np.arange(80)).astype(np.uint8), (40, 1))
    below, _ = extract(image, min_contrast=1.0764 * slope)
    above, _ = extract(image, min_contrast=1.0767 * slope)
    assert len(below) >= 5 * 8  # all but the columns that the picture's left and right border weaken
    assert len(above) == 0


def test_discarded_descriptors_leave_the_others_as_they_are():
    image = noise_image(60, 60, seed=1)
    image[:, :30] = 80
    everything, features = extract(image, min_contrast=0.0)
    kept, kept_features = extract(image, min_contrast=10.0)
    assert 0 < len(kept) < len(everything)
    places = {tuple(place): row for row, place in enumerate(features.xy.tolist())}
    rows = [places[tuple(place)] for place in kept_features.xy.tolist()]
    assert np.array_equal(everything[rows], kept)


# ---- the grid --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("width", "height", "step"), [(60, 60, 6), (100, 64, 3), (64, 101, 7), (80, 33, 1), (13, 90, 6)]
)
def test_count_and_centers_of_the_frames(width, height, step):
    bin_sizes = (2, 4, 6, 9)
    _, features = extract(noise_image(height, width), bin_sizes=bin_sizes, step_px=step)
    expected_centers, expected_scales = [], []
    for b in bin_sizes:
        # The outermost bin centers of a frame are 3 b apart; the first frame has its first bin center at pixel (0, 0).
        for y in range(0, height - 3 * b, step):
            for x in range(0, width - 3 * b, step):
                expected_centers.append((x + 1.5 * b, y + 1.5 * b))
                expected_scales.append(4 * b)
    assert len(features) == len(expected_centers)
    assert len(features) == sum(
        max(0, (height - 1 - 3 * b) // step + 1) * max(0, (width - 1 - 3 * b) // step + 1) for b in bin_sizes
    )
    assert np.allclose(centers_px(features), expected_centers, atol=1e-3)
    assert np.array_equal(features.scale, np.float32(expected_scales))
    assert features.size == (width, height)


def test_a_scale_larger_than_the_image_gives_nothing():
    image = noise_image(28, 60)
    assert len(extract(image, bin_sizes=(9,), step_px=1)[1]) == 1 * (60 - 27)
    assert len(extract(image[:27], bin_sizes=(9,), step_px=1)[1]) == 0
    both = extract(image[:27], bin_sizes=(4, 9), step_px=3)[1]
    assert set(both.scale.tolist()) == {16.0}


def test_image_is_resized_to_the_longest_side():
    assert DenseSIFT().extract(noise_image(80, 120)).size == (300, 200)
    assert DenseSIFT(longest_side=64).extract(noise_image(400, 100)).size == (16, 64)


def test_the_papers_settings_give_the_papers_count():
    # The authors' program reports about 17,000 to 23,000 descriptors for an image of 300 px.
    features = DenseSIFT((4, 6, 9), step_px=3, min_contrast=0).extract(noise_image(225, 300))
    assert len(features) == sum(((300 - 1 - 3 * b) // 3 + 1) * ((225 - 1 - 3 * b) // 3 + 1) for b in (4, 6, 9))
    assert 17_000 < len(features) < 23_000


def test_one_pixel_image():
    assert len(DenseSIFT().extract(np.zeros((1, 1), np.uint8))) == 0


# ---- numbers ---------------------------------------------------------------------------------------------------------


def blur_of(image, bin_size):
    sigma = math.sqrt((bin_size / 6) ** 2 - ((4 / 6) ** 2 - 0.66**2))
    return cv2.GaussianBlur(image, (0, 0), sigma)


def gaussian_by_numpy(image, sigma):
    """The same blur in float64, rounded once at the end."""
    radius = (round(sigma * 6 + 1) | 1) // 2
    kernel = np.exp(-0.5 * (np.arange(-radius, radius + 1) / sigma) ** 2)
    kernel /= kernel.sum()
    wide = np.pad(image.astype(float), radius, mode="reflect")
    wide = sum(k * wide[i : i + image.shape[0]] for i, k in enumerate(kernel))
    wide = sum(k * wide[:, i : i + image.shape[1]] for i, k in enumerate(kernel))
    return np.floor(wide + 0.5)


def reference_raw(blurred, x0, y0, b):
    """The 4 x 4 x 8 sums of one frame, pixel by pixel: triangle in x and y, two nearest orientations, window means."""
    image = np.asarray(blurred, dtype=float)
    height, width = image.shape
    gy, gx = np.gradient(image)  # central differences, one-sided at the border
    window = [
        np.mean([math.exp(-0.5 * ((o - c) / (2.0 * b)) ** 2) for o in range(1 - b, b)])
        for c in (-1.5 * b, -0.5 * b, 0.5 * b, 1.5 * b)
    ]
    raw = np.zeros((4, 4, 8))
    for i in range(4):
        for j in range(4):
            for dy in range(1 - b, b):
                for dx in range(1 - b, b):
                    y = min(max(y0 + i * b + dy, 0), height - 1)  # beyond the border: the nearest pixel's gradient
                    x = min(max(x0 + j * b + dx, 0), width - 1)
                    triangle = (1 - abs(dy) / b) * (1 - abs(dx) / b)
                    turn = math.atan2(gy[y, x], gx[y, x]) * 8 / (2 * math.pi) % 8
                    lower = math.floor(turn)
                    mass = math.hypot(gx[y, x], gy[y, x]) * triangle * window[i] * window[j]
                    raw[i, j, lower % 8] += mass * (1 - (turn - lower))
                    raw[i, j, (lower + 1) % 8] += mass * (turn - lower)
    return raw


def reference_descriptor(raw):
    unit = np.minimum(raw / np.linalg.norm(raw), 0.2)
    return (127 * unit / np.linalg.norm(unit) + 0.5).astype(int)


@pytest.mark.parametrize("b", [2, 4, 6])
def test_agrees_with_the_slow_reference(b):
    image = noise_image(40, 46, seed=b)
    bins, features = extract(image, bin_sizes=(b,), step_px=5)
    blurred = blur_of(image, b)
    n = len(features)
    for place in (0, 1, n // 3, n // 2, n - 2, n - 1):
        x0, y0 = np.round(centers_px(features)[place] - 1.5 * b).astype(int)
        expected = reference_descriptor(reference_raw(blurred, x0, y0, b))
        assert np.abs(bins[place].astype(int) - expected).max() <= 1
        assert np.mean(bins[place] != expected) < 0.02


def test_agrees_end_to_end_with_a_blur_of_its_own():
    # OpenCV's 8-bit blur may round a pixel the other way, so single values may differ by a few steps, the mean hardly.
    b = 4
    image = noise_image(40, 40, seed=8)
    bins, features = extract(image, bin_sizes=(b,), step_px=9)
    blurred = gaussian_by_numpy(image, 0.66)  # sqrt((4/6)^2 - ((4/6)^2 - 0.66^2))
    differences = []
    for place in range(0, len(features), 3):
        x0, y0 = np.round(centers_px(features)[place] - 1.5 * b).astype(int)
        differences.append(np.abs(bins[place] - reference_descriptor(reference_raw(blurred, x0, y0, b))))
    assert np.mean(differences) < 0.2
    assert np.max(differences) <= 3


def test_contrast_agrees_with_the_slow_reference():
    b = 4
    image = (noise_image(40, 40, seed=9) // 4).astype(np.uint8)
    _, features = extract(image, step_px=9)
    blurred = blur_of(image, b)
    places = np.round(centers_px(features) - 1.5 * b).astype(int)
    contrasts = np.array([reference_raw(blurred, x, y, b).sum() / (3 * b + 1) ** 2 for x, y in places])
    middle = float(np.median(contrasts)) + 1e-3
    _, kept = extract(image, step_px=9, min_contrast=middle)
    assert np.allclose(kept.xy, features.xy[contrasts >= middle])


def test_length_is_127_up_to_rounding():
    bins, _ = extract(noise_image(60, 60, seed=2), bin_sizes=(4, 6))
    lengths = np.linalg.norm(bins.reshape(len(bins), -1).astype(float), axis=1)
    assert np.abs(lengths - 127).max() <= 0.5 * math.sqrt(128)  # 128 values, each rounded by at most a half
    assert abs(lengths.mean() - 127) < 1.0


def test_values_are_capped_by_the_clip():
    # Of a unit vector clipped at 0.2 and scaled to unit length again, the largest value is 0.2 / its clipped length,
    # and it stands in every place that was clipped.
    b = 4
    rows, columns = np.mgrid[0:40, 0:40]
    image = np.clip(128 + 100 * np.sin(columns / 3) + 5 * np.sin(rows), 0, 255).astype(np.uint8)
    bins, features = extract(image)
    n_clipped = 0
    for place in range(0, len(features), 4):
        x0, y0 = np.round(centers_px(features)[place] - 1.5 * b).astype(int)
        raw = reference_raw(blur_of(image, b), x0, y0, b)
        unit = raw / np.linalg.norm(raw)
        cap = 127 * 0.2 / np.linalg.norm(np.minimum(unit, 0.2))
        assert bins[place].max() <= math.floor(cap + 0.5 + 1e-3)
        clipped = bins[place][unit > 0.201]
        assert (np.abs(clipped - cap) <= 0.51).all()
        n_clipped += len(clipped)
    assert n_clipped > 20


# ---- invariances -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("b", "step"), [(4, 6), (6, 3)])
def test_quarter_turn_permutes_the_descriptor(b, step):
    # np.rot90 moves pixel (x, y) to (y, n - 1 - x). A gradient (gx, gy) becomes (gy, -gx): its angle falls by 90
    # degrees, two orientations. Bin (row i, column j) becomes (row 3 - j, column i); frame (row r, column c) of an
    # m x m grid that fits the image exactly becomes (row m - 1 - c, column r).
    n = 61
    m = (n - 1 - 3 * b) // step + 1
    assert (n - 1 - 3 * b) % step == 0
    image = noise_image(n, n, seed=3)
    before, _ = extract(image, bin_sizes=(b,), step_px=step)
    after, _ = extract(np.ascontiguousarray(np.rot90(image)), bin_sizes=(b,), step_px=step)
    before, after = before.reshape(m, m, 4, 4, 8).astype(int), after.reshape(m, m, 4, 4, 8).astype(int)
    expected = np.empty_like(before)
    for r, c, i, j, t in np.ndindex(before.shape):
        expected[m - 1 - c, r, 3 - j, i, (t - 2) % 8] = before[r, c, i, j, t]
    assert np.abs(after - expected).max() <= 1
    assert not np.array_equal(after, before)


def test_mirror_image_permutes_the_descriptor():
    # Left and right change places: column j becomes 3 - j, the angle a becomes 180 - a: orientation t becomes 4 - t.
    n, b, step = 61, 4, 6
    m = (n - 1 - 3 * b) // step + 1
    image = noise_image(n, n, seed=4)
    before = extract(image)[0].reshape(m, m, 4, 4, 8).astype(int)
    after = extract(np.ascontiguousarray(image[:, ::-1]))[0].reshape(m, m, 4, 4, 8).astype(int)
    expected = before[:, ::-1, :, ::-1, :][..., [(4 - t) % 8 for t in range(8)]]
    assert np.abs(after - expected).max() <= 1


@pytest.mark.parametrize("offset", [1, 30, 90])
def test_brightness_does_not_matter(offset):
    image = (20 + noise_image(60, 60, seed=5) // 2).astype(np.uint8)
    before, _ = extract(image, bin_sizes=(4, 6))
    after, _ = extract(image + np.uint8(offset), bin_sizes=(4, 6))
    assert np.array_equal(before, after)


def test_contrast_hardly_matters():
    image = (noise_image(60, 60, seed=6) // 4).astype(np.uint8)
    before, _ = extract(image, bin_sizes=(4, 6))
    after, _ = extract(image * np.uint8(4), bin_sizes=(4, 6))
    difference = np.abs(before.astype(int) - after)
    assert difference.mean() < 0.6  # the blurred image is rounded to 8 bits, four times coarser in the weak one
    assert difference.max() <= 10


def test_shift_by_the_step_shifts_the_descriptors():
    image = noise_image(60, 66, seed=7)
    left = extract(image[:, :60])[0].reshape(8, 8, 4, 4, 8)
    right = extract(np.ascontiguousarray(image[:, 6:]))[0].reshape(8, 8, 4, 4, 8)
    assert np.array_equal(left[:, 2:7], right[:, 1:6])  # away from the border, where the blur sees other pixels


def test_rgb_and_gray_agree():
    gray = noise_image(50, 50)
    assert np.array_equal(extract(gray)[0], extract(np.stack([gray] * 3, axis=-1))[0])


# ---- inputs ----------------------------------------------------------------------------------------------------------


def test_input_is_not_changed_and_output_is_read_only():
    image = noise_image(50, 50)
    before = image.copy()
    image.flags.writeable = False
    features = DenseSIFT(longest_side=50).extract(image)
    assert np.array_equal(image, before)
    for array in (features.descriptors, features.xy, features.scale):
        assert not array.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        features.descriptors[0, 0] = 1


def test_same_image_same_descriptors():
    image = noise_image(50, 50)
    first, second = DenseSIFT().extract(image), DenseSIFT().extract(image)
    assert np.array_equal(first.descriptors, second.descriptors)
    assert np.array_equal(first.xy, second.xy)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"bin_sizes": []}, "bin_sizes must hold at least one size in pixels; got none"),
        ({"bin_sizes": [4, 1]}, "bin_sizes must be a whole number from 2 to 1000; got 1"),
        ({"bin_sizes": 1}, "bin_sizes must be a whole number from 2 to 1000; got 1"),
        ({"bin_sizes": ["4"]}, "bin_sizes .* got '4'"),
        ({"bin_sizes": [4, 6.5]}, r"bin_sizes.*6\.5"),
        ({"bin_sizes": [1001]}, "bin_sizes"),
        ({"step_px": 0}, "step_px must be a whole number from 1 to 10000; got 0"),
        ({"step_px": 2.5}, "step_px"),
        ({"min_contrast": -1}, "min_contrast must be a number, at least 0; got -1"),
        ({"min_contrast": math.nan}, "min_contrast"),
        ({"min_contrast": math.inf}, "min_contrast"),
        ({"longest_side": 7}, "longest_side must be a whole number from 8 to 10000; got 7"),
        ({"longest_side": 10_001}, "longest_side"),
        ({"window": 3}, "'dense-sift' has no setting 'window'; its settings: bin_sizes, step_px"),
        ({"step_px": None}, "step_px must be a whole number .* got None"),
        ({"bin_sizes": None}, "wrong type"),
        ({"min_contrast": "low"}, "wrong type"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(InvalidInputError, match=message):
        make_descriptor("dense-sift", settings)


@pytest.mark.parametrize("value", ["abc", math.inf, math.nan])
@pytest.mark.parametrize("name", ["step_px", "longest_side"])
def test_settings_that_are_no_whole_numbers_are_refused(name, value):
    """Text and infinities reach here from the command line's NAME=VALUE."""
    with pytest.raises(InvalidInputError, match=name):
        make_descriptor("dense-sift", {name: value})


def test_one_bin_size_may_be_given_as_a_number():
    image = noise_image(50, 50)
    expected, _ = extract(image, bin_sizes=(6,))
    for bin_sizes in (6, [6], np.array([6])):
        assert np.array_equal(extract(image, bin_sizes=bin_sizes)[0], expected)


def test_settings_are_checked_when_extracting():
    with pytest.raises(InvalidInputError, match="step_px"):
        DenseSIFT(step_px=0).extract(noise_image(50, 50))


def test_unknown_descriptor():
    with pytest.raises(
        UnknownNameError,
        match=r"Unknown descriptor 'hog'; choose one of: deep, deep-small, deep-small@\.\.\., deep@\.\.\., dense-sift",
    ):
        make_descriptor("hog")

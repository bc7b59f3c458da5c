import hashlib

import numpy as np
import pytest
from skimage.data import astronaut

from viewkit.pipelines.evaluate.corruptions.arrays import CorruptedArrays
from viewkit.pipelines.evaluate.corruptions.blur import disk
from viewkit.pipelines.evaluate.corruptions.digital import affine
from viewkit.pipelines.evaluate.corruptions.levels import LEVELS, SIDES_PX
from viewkit.pipelines.evaluate.corruptions.protocol import ALEXNET, PROTOCOLS, summarise
from viewkit.pipelines.evaluate.corruptions.table import CORRUPTIONS, corrupt
from viewkit.pipelines.evaluate.corruptions.weather import clouds, equalised
from viewkit.shards.errors import ConfigError, DataError

STEP = 7
PHOTO = astronaut()[::STEP, ::STEP][:64, :64].copy()  # 64 px
SMALL = np.ascontiguousarray(PHOTO[::2, ::2])
FLAT = np.full((32, 32, 3), 100, np.uint8)
MONOTONE = (
    "gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise", "gaussian_blur", "defocus_blur", "zoom_blur",
    "fog", "brightness", "contrast", "jpeg_compression", "pixelate",
)  # fmt: skip
"""Those whose severity is the size of one number. The others trade several, and as published are not monotone."""


def changed(image, kind, severity, levels="cifar", key="a", seed=0):
    return corrupt(image, kind, severity, levels=levels, seed=seed, key=key)


def difference(image, kind, severity, levels):
    keys = [f"{number}" for number in range(3)]
    return np.mean([np.abs(changed(image, kind, severity, levels, key).astype(float) - image).mean() for key in keys])


def test_there_are_nineteen_with_five_severities_in_three_sets():
    assert len(CORRUPTIONS) == 19 and len(PROTOCOLS["standard"].kinds) == 15 and len(PROTOCOLS["dsf"].kinds) == 18
    assert set(PROTOCOLS["dsf"].kinds) == set(CORRUPTIONS) - {"fog"} and PROTOCOLS["dsf"].severities == (1,)
    assert set(ALEXNET) == set(PROTOCOLS["standard"].kinds)
    for levels in LEVELS.values():
        assert set(levels) == set(SIDES_PX) and all(len(each) == 5 for each in levels.values())
    assert [LEVELS["gaussian_noise"][name][0] for name in SIDES_PX] == [0.04, 0.04, 0.08]


@pytest.mark.parametrize(("levels", "image"), [("cifar", SMALL), ("tiny", PHOTO)])
@pytest.mark.parametrize("kind", CORRUPTIONS)
def test_every_corruption_changes_the_pixels_at_every_severity(kind, levels, image):
    for severity in range(1, 6):
        found = changed(image, kind, severity, levels)
        assert found.dtype == np.uint8 and found.shape == image.shape and (found != image).any()


@pytest.mark.parametrize(("levels", "image"), [("cifar", SMALL), ("tiny", PHOTO)])
@pytest.mark.parametrize("kind", MONOTONE)
def test_severity_grows_the_mean_difference(kind, levels, image):
    found = [difference(image, kind, severity, levels) for severity in range(1, 6)]
    assert (np.diff(found) > 0).all(), found


@pytest.mark.slow
@pytest.mark.parametrize("kind", CORRUPTIONS)
def test_the_imagenet_set_changes_images_of_224_px(kind):
    image = np.ascontiguousarray(astronaut()[:448:2, :448:2])
    found = [difference(image, kind, severity, "imagenet") for severity in range(1, 6)]
    rising = kind in MONOTONE and kind not in ("fog", "pixelate")  # each fog has clouds of its own
    assert min(found) > 0.3 and (not rising or (np.diff(found) > -0.1).all()), found


@pytest.mark.parametrize("kind", CORRUPTIONS)
def test_a_corruption_depends_on_seed_key_kind_and_severity_alone(kind):
    first = changed(SMALL, kind, 3)
    for other in CORRUPTIONS:  # whatever was drawn in between
        changed(SMALL, other, 1, key="b")
    assert np.array_equal(first, changed(SMALL, kind, 3))
    random = kind not in ("gaussian_blur", "defocus_blur", "zoom_blur", "brightness", "saturate", "contrast",
                          "jpeg_compression", "pixelate")  # fmt: skip
    assert (changed(SMALL, kind, 3, key="b") != first).any() == random
    assert (changed(SMALL, kind, 3, seed=1) != first).any() == random


def test_what_has_a_closed_form():
    # cut, not rounded: a value that is an eighth of 255 above a whole number stays there
    assert (changed(FLAT, "brightness", 2) == int((100 / 255 + 0.1) * 255)).all()
    half = FLAT.copy()
    half[:16] = 200
    low, high = np.unique(changed(half, "contrast", 3)).tolist()
    assert low in (129, 130) and high in (169, 170)  # 150 -+ 0.4 * 50, cut where rounding falls below
    assert (changed(FLAT, "gaussian_blur", 5) >= 99).all() and (changed(FLAT, "zoom_blur", 5) >= 99).all()
    assert (changed(FLAT, "motion_blur", 5) == 100).all() and (changed(FLAT, "pixelate", 5) == 100).all()
    grey = changed(SMALL, "saturate", 2)
    assert np.ptp(grey.astype(int), axis=2).mean() < 0.2 * np.ptp(SMALL.astype(int), axis=2).mean()
    impulse = changed(FLAT, "impulse_noise", 5)
    assert set(np.unique(impulse)) == {0, 100, 255} and abs((impulse != 100).mean() - 0.07) < 0.02
    white = np.full((32, 32, 3), 128, np.uint8)
    noise = changed(white, "gaussian_noise", 5).astype(float) / 255
    assert abs(noise.std() - 0.10) < 0.005
    shot = changed(white, "shot_noise", 5).astype(float) / 255
    assert abs(shot.std() - np.sqrt(128 / 255 / 50)) < 0.005


def test_a_half_gaussian_of_one_direction_is_the_motion_blur():
    spot = np.zeros((32, 32, 3), np.uint8)
    spot[16, 16] = 255
    found = changed(spot, "motion_blur", 1).astype(float)[:, :, 0]
    weights = np.exp(-(np.arange(13) ** 2) / 2)
    assert np.allclose(np.sort(found[found > 0])[::-1], np.round(255 * weights / weights.sum())[:4], atol=1)
    assert found[16, 16] == found.max() and (found[:, 17:] == 0).all()


def test_a_disk_sums_to_one_and_an_affine_map_takes_its_points():
    for radius, sigma in (*LEVELS["defocus_blur"]["cifar"], *LEVELS["defocus_blur"]["imagenet"]):
        kernel = disk(radius, sigma)
        assert abs(kernel.sum() - 1) < 1e-12 and np.allclose(kernel, kernel[::-1, ::-1])
    assert disk(3, 0.1)[8, 5:12].min() == pytest.approx(1 / 29) and len(disk(10, 0.5)) == 21
    start, end = np.array([[1.0, 2], [3, 5], [-1, 4]]), np.array([[0.0, 1], [2, 2], [5, 5]])
    assert np.allclose(affine(start, end) @ np.concatenate([start, np.ones((3, 1))], axis=1).T, end.T)


def test_clouds_fill_0_to_1_and_get_rougher_with_less_decay():
    rough = [np.abs(np.diff(clouds(64, decay, np.random.default_rng(0)), axis=0)).mean() for decay in (3, 1.4)]
    assert rough[1] > 2 * rough[0]
    assert clouds(32, 2, np.random.default_rng(1)).min() == 0 and clouds(32, 2, np.random.default_rng(1)).max() == 1


def test_an_equalised_histogram_is_that_of_opencv():
    values = np.array([[3, 3, 5], [5, 9, 9], [9, 9, 9]])  # (cdf - 2) / 7 * 255
    assert equalised(values).tolist() == [[0, 0, 73], [73, 255, 255], [255, 255, 255]]
    assert equalised(np.full((2, 2), 7)).tolist() == [[7, 7], [7, 7]]


def test_the_two_means_are_told_apart():
    errors = {(kind, severity): 0.1 * severity for kind in LEVELS for severity in range(1, 6)}
    plain = summarise(errors, "standard", against_alexnet=False)
    assert plain["mce_unnormalised"] == pytest.approx(0.3) and plain["mce_alexnet"] is None
    relative = summarise(errors, "standard", against_alexnet=True)
    assert relative["mce_alexnet"] == pytest.approx(np.mean([0.3 / each for each in ALEXNET.values()]))
    alexnet = {(kind, severity): ALEXNET.get(kind, 0.5) for kind, severity in errors}
    assert summarise(alexnet, "standard", against_alexnet=True)["mce_alexnet"] == pytest.approx(1.0)
    dsf = summarise(errors, "dsf", against_alexnet=True)
    assert dsf["mce_unnormalised"] == pytest.approx(0.1) and dsf["mce_alexnet"] is None and len(dsf["errors"]) == 18


def test_an_unknown_corruption_is_refused_by_name():
    with pytest.raises(ConfigError, match="corruption is 'rain' at severity 1"):
        changed(SMALL, "rain", 1)
    with pytest.raises(ConfigError, match="at severity 6"):
        changed(SMALL, "fog", 6)


def arrays(folder, count=4):
    folder.mkdir()
    np.save(folder / "labels.npy", np.tile(np.arange(count) % 3, 5).astype(np.uint8))
    for number, kind in enumerate(PROTOCOLS["dsf"].kinds):
        images = np.full((5 * count, 32, 32, 3), number, np.uint8)
        images += np.repeat(np.arange(5, dtype=np.uint8) * 20, count)[:, None, None, None]
        np.save(folder / f"{kind}.npy", images)
    return CorruptedArrays(folder)


def test_published_arrays_are_read_as_they_are(tmp_path):
    found = arrays(tmp_path / "c")
    assert found.labels().tolist() == [0, 1, 2, 0]
    assert (found.images("shot_noise", 3) == 1 + 40).all() and found.images("shot_noise", 3).shape == (4, 32, 32, 3)
    before = found.digest("dsf")
    assert before.startswith("sha256:") and len(before) == 7 + hashlib.sha256().digest_size * 2
    np.save(tmp_path / "c" / "frost.npy", np.zeros((20, 32, 32, 3), np.uint8))
    assert found.digest("dsf") != before


def test_files_that_are_no_such_arrays_are_refused_and_never_unpickled(tmp_path):
    found = arrays(tmp_path / "c")
    np.save(tmp_path / "c" / "snow.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match=r"snow\.npy is no array file"):
        found.images("snow", 1)
    np.save(tmp_path / "c" / "frost.npy", np.zeros((19, 32, 32, 3), np.uint8))
    with pytest.raises(DataError, match=r"frost\.npy is uint8 \[19, 32, 32, 3\]; needed uint8 \[20 s s 3\]"):
        found.images("frost", 1)
    with pytest.raises(DataError, match=r"fog\.npy is missing"):
        found.digest("standard")
    np.save(tmp_path / "c" / "labels.npy", np.arange(20))
    with pytest.raises(DataError, match="the five severities have different labels"):
        found.labels()

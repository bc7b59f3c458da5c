import numpy as np
import pytest
import torch
import torchvision.transforms.v2.functional as F
from torchvision.transforms import InterpolationMode
from views_render import render_one

from viewkit.pipelines.engine.renderer import VARIABLE, find_library
from viewkit.pipelines.engine.seeds import row_ids
from viewkit.pipelines.views.policies import load_policy
from viewkit.pipelines.views.recipe import NUM_FIELDS, column, neutral_recipes, pixel_boxes
from viewkit.pipelines.views.render import render as render_module
from viewkit.pipelines.views.render.render import render
from viewkit.pipelines.views.sample import sample_recipes
from viewkit.shards.errors import ConfigError, DataError

SIZES = [(97, 130), (64, 64), (150, 60), (40, 200)]
PLAIN = {"mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)}


def photograph(height, width, seed=0):
    """Smooth colour with edges and some noise, so that every operation has something to change."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width] / max(height, width)
    waves = np.stack([np.sin(9 * x + c) * np.cos(7 * y - c) + ((x * 5 + c).astype(int) % 2) for c in range(3)], axis=2)
    pixels = 255 * (waves - waves.min()) / (waves.max() - waves.min()) + rng.normal(0, 6, waves.shape)
    return torch.from_numpy(pixels.clip(0, 255).astype(np.uint8))


IMAGES = [photograph(*size, seed) for seed, size in enumerate(SIZES)]


def some_recipes(policy, count=24, seed=0):
    index = np.arange(count) % len(SIZES)
    ids = row_ids([f"k{number}" for number in range(count)])
    recipes = sample_recipes(policy, ids, np.array(SIZES)[index], seed=seed, stage="test", num_views=2)
    return recipes.reshape(-1, NUM_FIELDS), np.repeat(index, 2)


def one(**fields):
    recipe = neutral_recipes(1, 48)
    for name, value in fields.items():
        recipe[0, column(name)] = value
    return recipe


@pytest.fixture(params=["loop", "products", "compiled"])
def form(request, monkeypatch):
    """Every form of the renderer, whatever the side."""
    if request.param == "compiled" and isinstance(find_library(), str):
        pytest.skip(f"the compiled renderer: {find_library()}")
    monkeypatch.setenv(VARIABLE, "compiled" if request.param == "compiled" else "torch")
    monkeypatch.setattr(render_module, "PRODUCT_SIDE_PX", 0 if request.param == "loop" else 10**6)
    return request.param


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize("side_px", [17, 64, 112])
def test_resize_is_bit_identical_to_torchvision_on_uint8(form, interpolation, side_px):
    recipes, index = some_recipes(load_policy("simclr"))
    plain = neutral_recipes(len(recipes), side_px)
    plain[:, 4:9] = recipes[:, 4:9]
    found = render(IMAGES, plain, index, side_px=side_px, interpolation=interpolation, **PLAIN) * 255
    boxes = pixel_boxes(plain, np.array(SIZES)[index])
    for row, (image, box) in enumerate(zip(index, boxes.tolist(), strict=True)):
        planar = IMAGES[image].permute(2, 0, 1)
        mode = InterpolationMode(interpolation)
        expected = F.resized_crop(planar, *box, [side_px, side_px], mode, antialias=True)
        expected = expected.flip(-1) if plain[row, column("flip")] else expected
        assert (found[row].round() == expected).all() and (found[row] - expected).abs().max() < 1e-3


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_resize_of_float_images_is_torchvisions(form, interpolation):
    recipes, index = some_recipes(load_policy("simclr"))
    plain = neutral_recipes(len(recipes), 56)
    plain[:, 4:8] = recipes[:, 4:8]
    images = [image.float() / 255 for image in IMAGES]
    found = render(images, plain, index, side_px=56, interpolation=interpolation, **PLAIN)
    boxes = pixel_boxes(plain, np.array(SIZES)[index])
    for row, (image, box) in enumerate(zip(index, boxes.tolist(), strict=True)):
        expected = render_one(images[image], plain[row].tolist(), box, 56, interpolation)
        assert (found[row] - expected).abs().max() * 255 < 1e-3


@pytest.mark.parametrize("name", ["moco_v1", "moco_v2", "simclr", "byol", "cifar"])
def test_whole_recipes_are_within_a_hundredth_of_a_level_of_torchvision(form, name):
    policy = load_policy(name).with_side(48)
    recipes, index = some_recipes(policy)
    solarized = recipes[:, column("solarize")] <= 1
    found = render(IMAGES, recipes, index, side_px=48, interpolation=policy.interpolation, **PLAIN)
    boxes = pixel_boxes(recipes, np.array(SIZES)[index])
    for row, (image, box) in enumerate(zip(index, boxes.tolist(), strict=True)):
        expected = render_one(IMAGES[image], recipes[row].tolist(), box, 48, policy.interpolation)
        error = (found[row] - expected).abs() * 255
        if solarized[row]:  # a value beside the threshold may fall on either side of it, and is then inverted
            threshold = float(recipes[row, column("solarize")])
            error = error[(expected - threshold).abs() > 0.01]
        assert error.max() < 0.01


CHANGES = {
    "top": {"top": 0.3, "height": 0.5},
    "left": {"left": 0.3, "width": 0.5},
    "flip": {"flip": 1},
    "brightness": {"brightness": 0.7},
    "contrast": {"contrast": 1.4},
    "saturation": {"saturation": 0.3},
    "hue": {"hue": 0.2},
    "grey": {"grey": 1},
    "grey first": {"grey": 2},
    "blur": {"sigma": 1.0},
    "solarize": {"solarize": 0.5},
} | {f"randaugment {op}": {"op_1": op, "strength_1": s} for op, s in enumerate(
    [0.2, 0.2, 0.2, 0.2, 15, 1.5, 1.5, 1.5, 1.5, 4, 0.5, 0, 0], start=1)}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_every_augmentation_changes_pixels(form, change):
    image = [(photograph(80, 80).float() * 0.7 + 20).to(torch.uint8)]
    before = render(image, one(), [0], side_px=48, **PLAIN)
    after = render(image, one(**CHANGES[change]), [0], side_px=48, **PLAIN)
    assert ((before - after).abs() * 255 > 1).float().mean() > 0.2


def test_neutral_numbers_change_nothing(form):
    plain = render(IMAGES[:1], one(), [0], side_px=48, **PLAIN)
    again = render(IMAGES[:1], one(order=17, op_1=0, strength_1=5), [0], side_px=48, **PLAIN)
    assert torch.equal(plain, again)


def test_blur_scales_with_the_side(form):
    recipe = one(sigma=1.5)  # px at 48
    image = [torch.zeros(96, 96, 3)]
    image[0][48:, :, :] = 1.0
    wide = render(image, recipe, [0], side_px=96, **PLAIN)[0, 0, :, 48]
    edge = torch.arange(96) + 0.5 - 48
    expected = 0.5 * (1 + torch.erf(edge / (3.0 * 2**0.5)))
    assert (wide - expected).abs().max() < 0.01


def test_views_are_the_same_alone_and_among_others(form):
    recipes, index = some_recipes(load_policy("byol").with_side(40))
    whole = render(IMAGES, recipes, index, side_px=40)
    for row in (0, 5, 11):
        alone = render([IMAGES[index[row]]], recipes[row : row + 1], [0], side_px=40)
        assert (alone[0] - whole[row]).abs().max() < 1e-4


def test_the_same_call_gives_the_same_bits(form):
    recipes, index = some_recipes(load_policy("simclr").with_side(40))
    first = render(IMAGES, recipes, index, side_px=40)
    memory = torch.full_like(first, 7.0)
    assert render(IMAGES, recipes, index, side_px=40, out=memory) is memory
    assert torch.equal(first, memory)


def test_both_forms_agree(monkeypatch):
    monkeypatch.setenv(VARIABLE, "torch")
    recipes, index = some_recipes(load_policy("dsf_cifar"))
    recipes = recipes[recipes[:, column("solarize")] > 1]
    index = index[: len(recipes)]
    monkeypatch.setattr(render_module, "PRODUCT_SIDE_PX", 0)
    loop = render(IMAGES, recipes, index, side_px=32, **PLAIN)
    monkeypatch.setattr(render_module, "PRODUCT_SIDE_PX", 32)
    assert (loop - render(IMAGES, recipes, index, side_px=32, **PLAIN)).abs().max() * 255 < 0.01


def test_normalisation_is_by_channel(form):
    mean, std = (0.1, 0.2, 0.3), (0.5, 0.25, 0.125)
    plain = render(IMAGES, one(), [1], side_px=48, **PLAIN)
    scaled = render(IMAGES, one(), [1], side_px=48, mean=mean, std=std)
    shape = (1, 3, 1, 1)
    assert torch.allclose(scaled, (plain - torch.tensor(mean).view(shape)) / torch.tensor(std).view(shape), atol=1e-5)


def test_one_tensor_of_images_is_as_good_as_a_list(form):
    block = torch.stack([photograph(50, 60, seed) for seed in range(3)])
    recipes = np.concatenate([one(top=0.2, height=0.5, hue=0.1)] * 3)
    as_list = render(list(block), recipes, [0, 1, 2], side_px=48)
    assert torch.equal(render(block, recipes, torch.tensor([0, 1, 2]), side_px=48), as_list)
    assert torch.equal(render(block, torch.from_numpy(recipes), [0, 1, 2], side_px=48), as_list)


@pytest.mark.parametrize("size", [(1, 1), (5000, 1), (1, 5000)])
def test_images_of_one_pixel_or_one_line_render(form, size):
    image = torch.full((*size, 3), 51, dtype=torch.uint8)
    recipe = one(top=0.25, height=0.5, left=0.1, width=0.3, sigma=2.0, grey=1, brightness=2.0, contrast=0.5, flip=1)
    found = render([image], recipe, [0], side_px=33, **PLAIN)
    assert torch.allclose(found, torch.full_like(found, 0.4), atol=2e-3)


def test_a_view_of_one_pixel_is_the_mean_of_its_crop(form):
    image = torch.tensor([[[0, 0, 0], [100, 100, 100]]], dtype=torch.uint8)
    assert render([image], one(sigma=1.0), [0], side_px=1, **PLAIN)[0, 0, 0, 0] * 255 == pytest.approx(50)


def test_no_recipes_give_no_views(form):
    assert render(IMAGES, neutral_recipes(0, 32), [], side_px=32).shape == (0, 3, 32, 32)


@pytest.mark.parametrize(
    "change, error, message",
    [
        ({"side_px": 0}, ConfigError, "side_px is 0; needed at least 1"),
        ({"image_index": [4]}, DataError, "image_index: 4; there are 4 images, from 0"),
        ({"image_index": [0, 1]}, DataError, r"image_index: shape \[2\], needed one image for each of 1 recipes"),
        ({"images": []}, DataError, "images: none given"),
        ({"images": [torch.zeros(5, 5)]}, DataError, r"image 0: shape \[5, 5\], needed \[h, w, 3\] \(RGB\)"),
        ({"images": [torch.zeros(5, 5, 4)]}, DataError, r"image 0: shape \[5, 5, 4\], needed"),
        ({"images": torch.zeros(5, 5, 3)}, DataError, r"images: shape \[5, 5, 3\], needed \[n, h, w, 3\]"),
        ({"images": [torch.zeros(5, 5, 3, dtype=torch.int32)]}, DataError, "image 0: torch.int32, needed uint8"),
        ({"images": [IMAGES[0], torch.zeros(5, 5, 3)]}, DataError, "image 1: torch.float32, and image 0: torch.uint8"),
        ({"images": [torch.zeros(0, 5, 3)]}, DataError, r"image 0: shape \[0, 5, 3\]"),
        ({"recipes": one(hue=np.nan)}, DataError, "row 0: hue is nan"),
        ({"recipes": one(left=0.5, width=0.6)}, DataError, "row 0: the box leaves the image"),
        ({"out": torch.zeros(1, 3, 5, 5)}, ConfigError, r"out is torch.float32 \[1, 3, 5, 5\] on cpu; needed"),
    ],
)
def test_bad_input_is_named(change, error, message):
    call = {"images": IMAGES, "recipes": one(), "image_index": [0], "side_px": 48} | change
    with pytest.raises(error, match=message):
        render(call.pop("images"), call.pop("recipes"), call.pop("image_index"), **call)


def test_reduced_precision_of_products_does_not_reach_the_pixels(monkeypatch):
    monkeypatch.setenv(VARIABLE, "torch")
    recipes, index = some_recipes(load_policy("cifar"))
    plain = neutral_recipes(len(recipes), 32)
    plain[:, 4:8] = recipes[:, 4:8]
    exact = render(IMAGES, plain, index, side_px=32)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        assert torch.equal(render(IMAGES, plain, index, side_px=32), exact)
    finally:
        torch.set_float32_matmul_precision(before)


def test_thin_images_of_both_kinds_in_one_batch_take_little_memory(monkeypatch):
    monkeypatch.setenv(VARIABLE, "torch")
    windows = []
    real = render_module.resize_windows

    def recorded(window, *rest):
        windows.append(window.shape)
        return real(window, *rest)

    monkeypatch.setattr(render_module, "resize_windows", recorded)
    images = [torch.zeros(20, 5000, 3, dtype=torch.uint8), torch.zeros(5000, 20, 3, dtype=torch.uint8)]
    views = render(images, neutral_recipes(64, 32), np.arange(64) % 2, side_px=32, **PLAIN)
    assert views.shape == (64, 3, 32, 32) and not views.any()
    assert sum(shape[0] for shape in windows) == 64
    assert max(shape[0] * shape[1] * shape[2] for shape in windows) <= 2 * 64 * 20 * 5000  # and not 64 * 5000 * 5000

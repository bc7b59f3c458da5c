"""Rendering views: agreement with torchvision, and speed against the libraries, on one core.

`python benchmarks/views.py [--rounds N] [--json] [--check]`. kornia and albumentations are compared where they are
installed. Every library samples its own numbers from the same distributions (MoCo v3's two views), inside the call.
"compiled" is what `render` uses where the kernels were built, "torch ops" what it uses elsewhere.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import io
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
import simplejpeg
import torch
import torchvision.transforms as v1
import torchvision.transforms.v2 as v2
import torchvision.transforms.v2.functional as F
from harness import Fact, Row, compare, main
from PIL import Image, ImageFilter, ImageOps
from torchvision.transforms import InterpolationMode

from viewkit.pipelines.engine.renderer import VARIABLE, find_library
from viewkit.pipelines.engine.seeds import row_ids
from viewkit.pipelines.views.policies import load_policy
from viewkit.pipelines.views.policy import Policy
from viewkit.pipelines.views.recipe import NUM_FIELDS, column, neutral_recipes, pixel_boxes
from viewkit.pipelines.views.render.render import render
from viewkit.pipelines.views.sample import sample_recipes

LARGE, SMALL = 24, 256
"""Images a call at 224 px and at 32 px; two views of each."""
MIDDLE = (375, 500)


def photographs(count: int, size: tuple[int, int]) -> list[np.ndarray]:
    """Crops of scikit-image's photographs, resized."""
    from skimage import data

    whole = [data.astronaut(), data.coffee(), data.chelsea(), data.rocket()]
    rng = np.random.default_rng(0)
    found = []
    for number in range(count):
        source = whole[number % len(whole)]
        height, width = int(source.shape[0] * 0.8), int(source.shape[1] * 0.8)
        top, left = rng.integers(0, source.shape[0] - height), rng.integers(0, source.shape[1] - width)
        crop = Image.fromarray(source[top : top + height, left : left + width])
        found.append(np.asarray(crop.resize(size[::-1], Image.Resampling.LANCZOS)))
    return found


class PilBlur:
    """What MoCo v3 does: Pillow's box approximation of a Gaussian."""

    def __call__(self, image: Image.Image) -> Image.Image:
        return image.filter(ImageFilter.GaussianBlur(float(torch.empty(1).uniform_(0.1, 2.0))))


def torchvision_v1(policy: Policy, spec: int) -> Callable[[Any], torch.Tensor]:
    """The recipe of most frameworks: PIL images, Pillow's blur and solarize."""
    view = policy.views[spec]
    jitter = v1.ColorJitter(view.brightness, view.contrast, view.saturation, view.hue)
    steps: list[Any] = [
        v1.RandomResizedCrop(policy.side_px, scale=view.area),
        v1.RandomApply([jitter], p=view.p_jitter),
        v1.RandomGrayscale(p=view.p_grey),
    ]
    if view.p_blur:
        steps.append(v1.RandomApply([PilBlur()], p=view.p_blur))
    if view.p_solarize:
        steps.append(v1.RandomApply([v1.Lambda(lambda image: ImageOps.solarize(image, 128))], p=view.p_solarize))
    steps += [v1.RandomHorizontalFlip(), v1.ToTensor(), v1.Normalize(policy.mean, policy.std)]
    return v1.Compose(steps)  # type: ignore[no-any-return]


def torchvision_v2(policy: Policy, spec: int) -> Callable[[Any], torch.Tensor]:
    """torchvision v2 on uint8 tensors, with its 23-tap blur."""
    view = policy.views[spec]
    jitter = v2.ColorJitter(view.brightness, view.contrast, view.saturation, view.hue)
    steps: list[Any] = [
        v2.RandomResizedCrop(policy.side_px, scale=view.area, antialias=True),
        v2.RandomApply([jitter], p=view.p_jitter),
        v2.RandomGrayscale(p=view.p_grey),
    ]
    if view.p_blur:
        steps.append(v2.RandomApply([v2.GaussianBlur(23, (0.1, 2.0))], p=view.p_blur))
    if view.p_solarize:
        steps.append(v2.RandomSolarize(128, p=view.p_solarize))
    steps += [v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(policy.mean, policy.std)]
    return v2.Compose(steps)  # type: ignore[no-any-return]


def two_views(transforms: Sequence[Callable[[Any], Any]], images: Sequence[Any]) -> Callable[[], object]:
    """Both views of every image, one by one, as a data loader's worker makes them."""
    return lambda: [transform(image) for image in images for transform in transforms]


class Ours:
    """One renderer, "torch" or "compiled", on fixed images, with its output memory used again."""

    def __init__(self, policy: Policy, arrays: Sequence[np.ndarray], renderer: str, num_views: int = 2) -> None:
        self.policy, self.renderer, self.num_views = policy, renderer, num_views
        self.images = [torch.from_numpy(array.copy()) for array in arrays]
        self.ids = row_ids([f"image{number}" for number in range(len(arrays))])
        self.sizes = np.array([array.shape[:2] for array in arrays])
        self.index = np.repeat(np.arange(len(arrays)), num_views)
        self.out = torch.empty(len(self.index), 3, policy.side_px, policy.side_px)
        self.round = 0
        self.recipes = self.sample()

    def sample(self) -> np.ndarray:
        """Recipes of the next round."""
        self.round += 1
        where = {"seed": 0, "stage": "bench", "round": self.round, "num_views": self.num_views}
        return sample_recipes(self.policy, self.ids, self.sizes, **where).reshape(-1, NUM_FIELDS)

    def __call__(self, images: Sequence[torch.Tensor] | None = None) -> torch.Tensor:
        self.recipes = self.sample()
        return self.render(images)

    def render(self, images: Sequence[torch.Tensor] | None = None) -> torch.Tensor:
        """The latest recipes, rendered again."""
        policy = self.policy
        os.environ[VARIABLE] = self.renderer
        return render(
            self.images if images is None else images,
            self.recipes,
            self.index,
            side_px=policy.side_px,
            mean=policy.mean,
            std=policy.std,
            interpolation=policy.interpolation,
            out=self.out,
        )


def albumentations_views(policy: Policy, spec: int) -> Callable[[np.ndarray], torch.Tensor]:
    """The same recipe in albumentations; its resize does not antialias."""
    import albumentations as A

    view = policy.views[spec]
    side = policy.side_px
    steps: list[Any] = [
        A.RandomResizedCrop((side, side), scale=view.area),
        A.ColorJitter(view.brightness, view.contrast, view.saturation, view.hue, p=view.p_jitter),
        A.ToGray(p=view.p_grey),
        A.GaussianBlur(blur_limit=0, sigma_limit=(0.1, 2.0), p=view.p_blur),
        A.Solarize(threshold_range=(0.5, 0.5), p=view.p_solarize),
        A.HorizontalFlip(p=view.p_flip),
        A.Normalize(policy.mean, policy.std),
    ]
    chain = A.Compose(steps)
    return lambda array: torch.from_numpy(chain(image=array)["image"].transpose(2, 0, 1))


def kornia_views(policy: Policy, spec: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """The same recipe in kornia, on a float batch; crops by slicing, as it recommends for a CPU."""
    import kornia.augmentation as K

    view, side = policy.views[spec], (policy.side_px, policy.side_px)
    chain = K.AugmentationSequential(
        K.RandomResizedCrop(side, scale=view.area, cropping_mode="slice"),
        K.ColorJitter(view.brightness, view.contrast, view.saturation, view.hue, p=view.p_jitter),
        K.RandomGrayscale(p=view.p_grey),
        K.RandomGaussianBlur((23, 23), (0.1, 2.0), p=view.p_blur),
        K.RandomSolarize(0.0, 0.0, p=view.p_solarize),
        K.RandomHorizontalFlip(p=view.p_flip),
        K.Normalize(torch.tensor(policy.mean), torch.tensor(policy.std)),
    )
    return chain  # type: ignore[no-any-return]


def agreement(arrays: Sequence[np.ndarray], renderer: str) -> list[Fact]:
    """Largest differences from torchvision, in levels of 255."""
    os.environ[VARIABLE] = renderer
    facts = []
    for name in ("bilinear", "bicubic"):
        policy = load_policy("simclr")
        ours = Ours(policy, arrays, renderer)
        plain = neutral_recipes(len(ours.recipes), 224)
        plain[:, column("top") : column("width") + 1] = ours.recipes[:, column("top") : column("width") + 1]
        boxes = pixel_boxes(plain, np.repeat(ours.sizes, 2, axis=0)).tolist()
        mode = InterpolationMode(name)
        for kind, scale in (("uint8", 1.0), ("float", 255.0)):
            images = ours.images if kind == "uint8" else [image / 255 for image in ours.images]
            found = (
                render(images, plain, ours.index, side_px=224, mean=(0, 0, 0), std=(1, 1, 1), interpolation=name) * 255
            )
            worst = 0.0
            for view, box, at in zip(found, boxes, ours.index, strict=True):
                expected = F.resized_crop(images[at].permute(2, 0, 1), *box, [224, 224], mode, antialias=True) * scale
                view = view.round() if kind == "uint8" else view
                worst = max(worst, float((view - expected.clamp(0, 255)).abs().max()))
            facts.append(Fact(f"resize, {renderer}, {name}, {kind}: levels off", worst))
    return facts


RECIPES = (
    ("cifar", 32, (32, 32), 256, 2),
    ("moco_v3_vit", 32, (64, 64), 32, 5),
    ("dsf_cifar", 32, (32, 32), 256, 2),
    ("moco_v3", 96, (128, 150), 64, 2),
    ("moco_v3", 224, MIDDLE, LARGE, 2),
)
"""Policy, side, images' size and number, views of each.
The second is a round of `score` with the preset pico-32."""


def compiled_over_torch(rounds: int) -> list[Row | Fact]:
    """The same recipes by both renderers, without their sampling; and the most that the views differ."""
    rows: list[Row | Fact] = []
    for name, side, size, count, num_views in RECIPES:
        policy = load_policy(name).with_side(side)
        compiled, torch_ops = (
            Ours(policy, photographs(count, size), renderer, num_views) for renderer in ("compiled", "torch")
        )
        label = f"{name}, {side} px from {size[0]}: compiled / torch ops"
        units = count * num_views
        rows.append(compare(label, compiled.render, torch_ops.render, rounds, units=units))
    return rows


def run(rounds: int) -> tuple[list[Row | Fact], list[str]]:
    """All comparisons that this machine can do."""
    torch.set_num_threads(1)
    rows: list[Row | Fact] = []
    left_out: list[str] = []
    arrays = photographs(LARGE, MIDDLE)
    renderers = ["torch"]
    if isinstance(library := find_library(), str):
        left_out.append(f"the compiled renderer: {library}")
    else:
        renderers.append("compiled")
        rows += compiled_over_torch(rounds)
    for renderer in renderers:
        rows += agreement(arrays[:8], renderer)

    policy = load_policy("moco_v3")
    pictures = [Image.fromarray(array) for array in arrays]
    planar = [torch.from_numpy(array.copy()).permute(2, 0, 1).contiguous() for array in arrays]
    ours = Ours(policy, arrays, "torch")
    peer = two_views([torchvision_v1(policy, spec) for spec in (0, 1)], pictures)
    rows.append(compare("224 px, torch ops / torchvision v1", ours, peer, rounds, units=2 * LARGE))
    newer = two_views([torchvision_v2(policy, spec) for spec in (0, 1)], planar)
    rows.append(compare("224 px, torch ops / torchvision v2", ours, newer, rounds, units=2 * LARGE))
    compiled = Ours(policy, arrays, renderers[-1])
    if "compiled" in renderers:
        rows.append(compare("224 px, compiled / torchvision v1", compiled, peer, rounds, units=2 * LARGE))

    files = [
        simplejpeg.encode_jpeg(np.ascontiguousarray(array), quality=95, colorsubsampling="420") for array in arrays
    ]

    def decoded() -> torch.Tensor:
        return compiled([torch.from_numpy(simplejpeg.decode_jpeg(file)) for file in files])

    chains = [torchvision_v1(policy, spec) for spec in (0, 1)]

    def opened() -> object:
        return [
            [chain(image) for chain in chains]
            for image in (Image.open(io.BytesIO(file)).convert("RGB") for file in files)
        ]

    rows.append(compare("JPEG to two views / PIL + torchvision v1", decoded, opened, rounds, units=2 * LARGE))

    tiny = load_policy("cifar")
    tiny_arrays = photographs(SMALL, (32, 32))
    ours_tiny = Ours(tiny, tiny_arrays, "torch")
    tiny_chains = [torchvision_v1(tiny, spec) for spec in (0, 1)]
    peer_tiny = two_views(tiny_chains, [Image.fromarray(array) for array in tiny_arrays])
    rows.append(compare("32 px, torch ops / torchvision v1", ours_tiny, peer_tiny, rounds, units=2 * SMALL))
    compiled_tiny = Ours(tiny, tiny_arrays, renderers[-1])
    if "compiled" in renderers:
        name = "32 px, compiled / torchvision v1"
        rows.append(compare(name, compiled_tiny, peer_tiny, rounds, units=2 * SMALL))
    if find_spec("kornia"):
        batch = torch.stack([torch.from_numpy(array.copy()).permute(2, 0, 1) for array in tiny_arrays]).float() / 255
        kornia_tiny = [kornia_views(tiny, spec) for spec in (0, 1)]

        def kornia() -> object:
            return [chain(batch) for chain in kornia_tiny]

        rows.append(compare("32 px, torch ops / kornia", ours_tiny, kornia, rounds, units=2 * SMALL))
    else:
        left_out.append("kornia: not installed (pip install kornia)")
    if find_spec("albumentations"):
        albumentations_tiny = two_views([albumentations_views(tiny, spec) for spec in (0, 1)], tiny_arrays)
        name = "32 px, torch ops / albumentations"
        rows.append(compare(name, ours_tiny, albumentations_tiny, rounds, units=2 * SMALL))
        albumentations_large = two_views([albumentations_views(policy, spec) for spec in (0, 1)], arrays)
        for label, mine in (("torch ops", ours), *([("compiled", compiled)] if "compiled" in renderers else [])):
            name = f"224 px, {label} / albumentations (no antialias)"
            rows.append(compare(name, mine, albumentations_large, rounds, units=2 * LARGE))
    else:
        left_out.append("albumentations: not installed (pip install albumentations)")
    if not torch.cuda.is_available():
        left_out.append("a GPU: none here")
    return rows, left_out


if __name__ == "__main__":
    main("views", run)

"""Render recipes: images in, normalised views out. Samples nothing.

The order of a view: crop and antialiased resize, RandAugment, flip, grey (where it comes first), jitter in the
recipe's order, grey, blur, solarize, normalise. On a CPU the compiled kernels do it where `engine.renderer` chooses
them; otherwise, and on a GPU, torch's operations, in two forms.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from viewkit.pipelines.engine.renderer import chosen_library
from viewkit.pipelines.engine.transfer import to_device
from viewkit.pipelines.views.policy import IMAGENET_MEAN, IMAGENET_STD, Colour, Interpolation
from viewkit.pipelines.views.recipe import NO_SOLARIZE, check_recipes, column, pixel_boxes
from viewkit.pipelines.views.render.blur import blur, blur_batch
from viewkit.pipelines.views.render.buffers import Buffers
from viewkit.pipelines.views.render.colour import WHITE, Blend, apply_blend, jitter, make_grey, solarize
from viewkit.pipelines.views.render.colour_batch import colour_order, grey_batch, jitter_batch, solarize_batch
from viewkit.pipelines.views.render.kernels import crops_of, looks_of, run_kernels
from viewkit.pipelines.views.render.operations import apply_operations
from viewkit.pipelines.views.render.resize import FILTERS, resize_crop, resize_windows
from viewkit.shards.errors import ConfigError, DataError
from viewkit.shards.spans import spanned

Images = Sequence[Tensor] | Tensor


@dataclass(frozen=True)
class RenderCall:
    """One call of `render`, checked: m recipes, the image and the box in whole pixels of each."""

    images: Images
    recipes: Float[np.ndarray, "m p"]
    index: Int[np.ndarray, " m"]
    boxes: Int[np.ndarray, "m 4"]
    side_px: int
    mean: Colour
    std: Colour
    interpolation: Interpolation


PRODUCT_SIDE_PX = 48
"""On a CPU, torch's operations take views up to this side as a batch of products, larger ones view by view."""
CPU_VIEWS = 128
"""Views of such a batch: they stay in the cache."""
CPU_BYTES, GPU_BYTES = 2**29, 2**30
"""Working memory of a batch, counted as float32 windows and views; a single view may take more."""


@spanned("render")
@torch.no_grad()
def render(
    images: Sequence[Tensor] | Tensor,
    recipes: np.ndarray | Tensor,
    image_index: np.ndarray | Tensor | Sequence[int],
    *,
    side_px: int,
    mean: Colour = IMAGENET_MEAN,
    std: Colour = IMAGENET_STD,
    interpolation: Interpolation = "bilinear",
    out: Tensor | None = None,
) -> Float[Tensor, "m 3 {side_px} {side_px}"]:
    """Views of m recipes.

    images: all uint8 0-255, or all float 0-1 [h w 3], of any sizes, or one tensor [n h w 3]; all on one device.
    recipes: float32 [m p]; image_index: for each recipe, the image it is cropped from. mean, std: of values in 0-1.
    Blur sigmas are scaled from the side they were sampled for to `side_px`.
    out: memory for the result, to be used again; fresh memory costs a third of the time on a CPU.
    Raises `DataError` for images, recipes or indices that cannot be rendered, naming which.
    """
    rows = check_recipes(np.asarray(recipes.cpu() if isinstance(recipes, Tensor) else recipes))
    if rows.ndim != 2:
        raise DataError(f"recipes: an array of shape {list(rows.shape)}, needed [m, p]; reshape it first")
    index = np.asarray(image_index.cpu() if isinstance(image_index, Tensor) else image_index, dtype=np.int64)
    _check(images, index, len(rows), side_px, interpolation)
    if out is None:
        out = torch.empty(len(rows), 3, side_px, side_px, device=images[0].device)
    shape = (len(rows), 3, side_px, side_px)
    if out.shape != shape or out.dtype != torch.float32 or not out.is_contiguous() or out.device != images[0].device:
        raise ConfigError(
            f"out is {out.dtype} {list(out.shape)} on {out.device}; needed contiguous float32 {list(shape)} "
            f"on {images[0].device}"
        )
    sizes = np.array([image.shape[:2] for image in images], dtype=np.int64)[index]
    call = RenderCall(images, rows, index, pixel_boxes(rows, sizes), side_px, mean, std, interpolation)
    library = chosen_library() if out.device.type == "cpu" else None
    if library is not None:
        _render_compiled(call, library, out)
    elif out.device.type == "cpu" and side_px > PRODUCT_SIDE_PX:
        _render_loop(call, out)
    else:
        _render_batches(call, out)
    return out


def _check(images: Images, index: np.ndarray, count: int, side_px: int, interpolation: str) -> None:
    if side_px < 1:
        raise ConfigError(f"side_px is {side_px}; needed at least 1")
    if interpolation not in FILTERS:
        raise ConfigError(f"interpolation is {interpolation!r}; needed one of {', '.join(FILTERS)}")
    if index.shape != (count,):
        raise DataError(f"image_index: shape {list(index.shape)}, needed one image for each of {count} recipes")
    if not len(images):
        raise DataError("images: none given")
    if index.size and not 0 <= index.min() <= index.max() < len(images):
        wrong = index[(index < 0) | (index >= len(images))][0]
        raise DataError(f"image_index: {wrong}; there are {len(images)} images, from 0")
    for place, image in enumerate([images] if isinstance(images, Tensor) else images):
        name = "images" if isinstance(images, Tensor) else f"image {place}"
        dims = 4 if isinstance(images, Tensor) else 3
        if image.ndim != dims or image.shape[-1] != 3 or 0 in image.shape:
            shape = "[n, h, w, 3]" if dims == 4 else "[h, w, 3]"
            raise DataError(f"{name}: shape {list(image.shape)}, needed {shape} (RGB); convert grey and RGBA first")
        if image.dtype != torch.uint8 and not image.dtype.is_floating_point:
            raise DataError(f"{name}: {image.dtype}, needed uint8 (0-255) or a float type (0-1)")
        if (image.dtype == torch.uint8) != (images[0].dtype == torch.uint8):
            raise DataError(f"{name}: {image.dtype}, and image 0: {images[0].dtype}; convert them to one type first")


def _has_operations(recipes: Float[np.ndarray, "m p"]) -> Bool[np.ndarray, " m"]:
    """Which views take RandAugment's operations, which are torch's on every device."""
    return (recipes[:, column("op_1")] > 0) | (recipes[:, column("op_2")] > 0)


def _render_compiled(call: RenderCall, library: ctypes.CDLL, out: Float[Tensor, "m 3 s s"]) -> None:
    """`kernels.c`, from the image's bytes to the view at once; float images are resized by torch."""
    images = [image if image.stride()[1:] == (3, 1) else image.contiguous() for image in call.images]
    is_bytes = images[0].dtype == torch.uint8
    has_operations = _has_operations(call.recipes)
    flips = call.recipes[:, column("flip")] > 0
    at_once = ~has_operations & is_bytes
    crops = crops_of(images, call.index, call.boxes, flips & at_once)
    looks, taps = looks_of(call.recipes, call.side_px)

    def finish(chosen: Int[np.ndarray, " k"], crops: Int[np.ndarray, "k 5"] | None) -> None:
        colours = {"looks": looks[chosen], "taps": taps[chosen], "mean": call.mean, "std": call.std}
        run_kernels(library, out, chosen, crops=crops, interpolation=call.interpolation, **colours)

    finish(np.flatnonzero(at_once), crops[at_once])
    if (rest := np.flatnonzero(~at_once)).size:
        if is_bytes:
            run_kernels(library, out, rest, crops=crops[rest], interpolation=call.interpolation)
        else:
            for place in rest.tolist():
                image, box = images[call.index[place]].float(), tuple(call.boxes[place].tolist())
                torch.mul(resize_crop(image, box, call.side_px, call.interpolation), WHITE, out=out[place])
        at = torch.from_numpy(rest)
        batch = out[at].transpose(0, 1).contiguous()  # 3 k s s
        apply_operations(batch, call.recipes[rest])
        _flip(batch, flips[rest])
        out[at] = batch.transpose(0, 1)
        finish(rest, None)


def _flip(batch: Float[Tensor, "3 k s s"], chosen: Bool[np.ndarray, " k"]) -> None:
    """Mirror the chosen views left to right, in place."""
    at = to_device(np.flatnonzero(chosen), batch.device)
    if at.numel():
        batch.index_copy_(1, at, batch.index_select(1, at).flip(-1))


def _render_loop(call: RenderCall, out: Float[Tensor, "m 3 s s"]) -> None:
    """View by view: each stays in the cache from the resize to the normalisation."""
    buffers = Buffers(call.side_px)
    has_operations = _has_operations(call.recipes).tolist()
    flip = column("flip")
    rows = zip(call.recipes.tolist(), call.index.tolist(), call.boxes.tolist(), strict=True)
    for place, (recipe, image, box) in enumerate(rows):
        pixels = resize_crop(call.images[image], tuple(box), call.side_px, call.interpolation)
        if pixels.dtype != torch.uint8:
            pixels = pixels.float() * WHITE
        if has_operations[place]:
            pixels = pixels.float()
            apply_operations(pixels[:, None], call.recipes[place : place + 1])
        buffers.view.copy_(pixels.flip(-1) if recipe[flip] else pixels)
        _finish_view(buffers.view, recipe, call, buffers, out[place])


def _finish_view(
    work: Float[Tensor, "3 s s"], recipe: list[float], call: RenderCall, buffers: Buffers, view: Float[Tensor, "3 s s"]
) -> None:
    """Everything after the resize and the flip, from `work` into `view`."""
    blend = Blend()
    grey = recipe[column("grey")]
    if grey == 2:
        make_grey(work, blend, buffers)
    first = column("brightness")
    factors = (recipe[first], recipe[first + 1], recipe[first + 2], recipe[first + 3])
    jitter(work, factors, int(recipe[column("order")]), blend, buffers)
    if grey == 1:
        make_grey(work, blend, buffers)
    sigma = recipe[column("sigma")] * call.side_px / recipe[column("side")]
    threshold = recipe[column("solarize")]
    if sigma > 0 or threshold < NO_SOLARIZE:
        apply_blend(work, blend, buffers)
        if sigma > 0:
            blur(work, sigma, buffers)
        if threshold < NO_SOLARIZE:
            solarize(work, threshold * WHITE)
    apply_blend(work, blend, buffers)
    for channel in range(3):
        scale = 1 / (WHITE * call.std[channel])
        torch.mul(work[channel], scale, out=view[channel]).sub_(call.mean[channel] / call.std[channel])


def _render_batches(call: RenderCall, out: Float[Tensor, "m 3 s s"]) -> None:
    """Batches of views at once, on any device: windows of about one size together, so that little is padding."""
    packed = PackedImages(call.images)
    order = np.argsort(call.boxes[:, 2] * call.boxes[:, 3], kind="stable")[::-1]
    start = 0
    most, budget = (CPU_VIEWS, CPU_BYTES) if out.device.type == "cpu" else (len(order), GPU_BYTES)
    while start < len(order):
        part = order[start : start + most]
        part = part[: max(1, int((_bytes_of(call.boxes[part], call.side_px) <= budget).sum()))]
        part = part[colour_order(call.recipes[part])]
        batch = packed.views(call.index[part], call.boxes[part], call.side_px, call.interpolation)
        _finish_batch(batch, part, call, out)
        start += len(part)


def _bytes_of(boxes: Int[np.ndarray, "k 4"], side_px: int) -> Int[np.ndarray, " k"]:
    """Memory that the first 1, 2 ... k views take when all are padded to the largest height and width among them."""
    height, width = np.maximum.accumulate(boxes[:, 2]), np.maximum.accumulate(boxes[:, 3])
    view = 4 * (6 * height * width + 8 * side_px * (height + width) + 12 * side_px**2)
    return view.astype(np.int64) * np.arange(1, len(boxes) + 1)


class PackedImages:
    """The pixels of many images in one block, so that a batch of crops of any sizes is one gather."""

    def __init__(self, images: Images) -> None:
        sizes = np.array([image.shape[:2] for image in images], dtype=np.int64)
        self.widths = sizes[:, 1]
        self.starts = np.concatenate([[0], np.cumsum(sizes[:, 0] * sizes[:, 1])[:-1]])
        self.flat = (
            images.reshape(-1, 3) if isinstance(images, Tensor) else torch.cat([i.reshape(-1, 3) for i in images])
        )

    def views(
        self, index: Int[np.ndarray, " m"], boxes: Int[np.ndarray, "m 4"], side_px: int, interpolation: Interpolation
    ) -> Float[Tensor, "3 m s s"]:
        """Resized crops, 0-255."""
        device = self.flat.device
        first = self.starts[index] + boxes[:, 0] * self.widths[index] + boxes[:, 1]
        numbers = np.stack([first, self.widths[index], boxes[:, 2], boxes[:, 3]])
        corner, pitch, height, width = to_device(numbers, device)
        y = torch.arange(int(boxes[:, 2].max()), device=device)
        x = torch.arange(int(boxes[:, 3].max()), device=device)
        rows = corner[:, None] + torch.minimum(y, height[:, None] - 1) * pitch[:, None]  # m h
        places = rows[:, :, None] + torch.minimum(x, width[:, None] - 1)[:, None, :]  # m h w
        windows = self.flat.index_select(0, places.view(-1)).view(*places.shape, 3)
        batch = resize_windows(windows, boxes[:, 2:], side_px, interpolation)
        return batch if self.flat.dtype == torch.uint8 else batch.mul_(WHITE)


def _finish_batch(batch: Float[Tensor, "3 k s s"], part: Int[np.ndarray, " k"], call: RenderCall, out: Tensor) -> None:
    """Everything after the resize, into out[part]; `part` is in the order of `colour_order`."""
    recipes = call.recipes[part]

    def numbers(name: str) -> Float[np.ndarray, " k"]:
        return recipes[:, column(name)]

    apply_operations(batch, recipes)
    _flip(batch, numbers("flip") > 0)
    grey_batch(batch, numbers("grey") == 2)
    jitter_batch(batch, recipes)
    grey_batch(batch, numbers("grey") == 1)
    blur_batch(batch, numbers("sigma") * call.side_px / numbers("side"))
    solarize_batch(batch, numbers("solarize"))
    for channel in range(3):
        batch[channel].mul_(1 / (WHITE * call.std[channel])).sub_(call.mean[channel] / call.std[channel])
    out[to_device(part, out.device)] = batch.transpose(0, 1)

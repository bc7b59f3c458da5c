"""What `kernels.c` is called with: crops of images, the colour of every view, and the weights of the blurs."""

import ctypes
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Int, Int64
from torch import Tensor

from viewkit.pipelines.views.policy import Colour, Interpolation
from viewkit.pipelines.views.recipe import ORDERS, column
from viewkit.pipelines.views.render.blur import REACH
from viewkit.pipelines.views.render.colour import WHITE

TOLERANCE = 0.002
"""Most levels of 255 between a view of the compiled renderer and one of torch's operations, before normalisation, on
uint8 images. Values that close to a solarize threshold may fall on either side of it."""
PIXELS_PER_THREAD = 2**18
"""Fewer than these are not worth starting a thread."""
SEQUENCES = np.array(ORDERS)  # 24 4


class _Call(ctypes.Structure):
    """The C struct `Call`."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("count", "side", "cubic", "max_taps")),
        *((name, ctypes.c_void_p) for name in ("crops", "looks", "taps", "scale", "shift", "places", "out")),
    )


def crops_of(
    images: Sequence[Tensor],
    index: Int[np.ndarray, " m"],
    boxes: Int[np.ndarray, "m 4"],
    flips: Bool[np.ndarray, " m"],
) -> Int64[np.ndarray, "m 5"]:
    """The C structs `Crop`, valid as long as the images (uint8 [h w 3], a row's pixels contiguous) are there."""
    layout = np.array([(image.data_ptr(), image.stride(0)) for image in images], dtype=np.int64)[index]
    address = layout[:, 0] + boxes[:, 0] * layout[:, 1] + 3 * boxes[:, 1]
    return np.column_stack([address, layout[:, 1], boxes[:, 2:], flips.astype(np.int64)])


def looks_of(
    recipes: Float32[np.ndarray, "m p"], side_px: int
) -> tuple[Float32[np.ndarray, "m 11"], Float32[np.ndarray, "m taps"]]:
    """The C structs `Look`, and the blurs' weights (the centre and one side), zero beyond each radius."""
    sequence = SEQUENCES[recipes[:, column("order")].astype(np.int64)]  # m 4
    factors = np.take_along_axis(recipes[:, column("brightness") : column("hue") + 1], sequence, axis=1)
    sigma = recipes[:, column("sigma")].astype(np.float64) * side_px / recipes[:, column("side")]
    radius = np.where(sigma > 0, np.clip(np.ceil(REACH * sigma - 0.5), 0, side_px - 1), 0)
    tap = np.arange(int(radius.max(initial=0)) + 1)
    weights = np.exp(-0.5 * (tap / np.where(sigma > 0, sigma, 1)[:, None]) ** 2) * (tap <= radius[:, None])
    weights /= 2 * weights.sum(axis=1, keepdims=True) - weights[:, :1]
    threshold = recipes[:, column("solarize")] * np.float32(WHITE)
    looks = np.column_stack([recipes[:, column("grey")], sequence, factors, radius, threshold])
    return looks.astype(np.float32), weights.astype(np.float32)


def run_kernels(
    library: ctypes.CDLL,
    out: Float[Tensor, "n 3 s s"],
    places: Int64[np.ndarray, " m"],
    *,
    crops: Int64[np.ndarray, "m 5"] | None = None,
    interpolation: Interpolation = "bilinear",
    looks: Float32[np.ndarray, "m 11"] | None = None,
    taps: Float32[np.ndarray, "m taps"] | None = None,
    mean: Colour = (0.0, 0.0, 0.0),
    std: Colour = (1.0, 1.0, 1.0),
    copy: int | None = None,
) -> None:
    """Views into out[places], on as many threads as torch uses; every view is computed by one of them alone.

    crops: where to resize from; without, the views lie in out[places] already (0-255). looks, taps: colour, blur and
    solarize, then the normalisation; without, whole levels are left. copy: which instruction set's copy of the code to
    run, the fastest by default; all give the same bits.
    """
    side = out.shape[-1]
    best = library.viewkit_copies() - 1 if copy is None else copy
    scale = np.array([1 / (WHITE * part) for part in std], dtype=np.float32)
    shift = np.array([middle / part for middle, part in zip(mean, std, strict=True)], dtype=np.float32)

    def run(part: slice) -> None:
        arrays = [None if array is None else np.ascontiguousarray(array[part]) for array in (crops, looks, taps)]
        here = np.ascontiguousarray(places[part], dtype=np.int64)
        pointers = [None if array is None else array.ctypes.data for array in (*arrays, scale, shift, here)]
        max_taps = 0 if taps is None else taps.shape[1]
        call = _Call(len(here), side, interpolation == "bicubic", max_taps, *pointers, out.data_ptr())
        if library.viewkit_render(ctypes.c_int32(best), ctypes.byref(call)):
            raise MemoryError(f"no memory for the working space of {len(here)} views of {side} px")

    threads = min(torch.get_num_threads(), len(places), 1 + len(places) * side**2 // PIXELS_PER_THREAD)
    if threads < 2:
        run(slice(None))
        return
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(run, [slice(first, None, threads) for first in range(threads)]))

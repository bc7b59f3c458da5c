"""Optional compiled operations for CPUs: `kernels.c`, built once with the machine's own C compiler.

Nothing is installed for it and nothing depends on it: `load_kernels` builds a small shared library into the user's
cache folder (a second) or says why it cannot. `render(..., kernels=load_kernels())` then gives the same views as
without, to 0.001 levels, in less than half of the time.
"""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from viewkit.pipelines.views.blur import kernel, radius_of
from viewkit.pipelines.views.colour import WHITE
from viewkit.pipelines.views.policy import Colour
from viewkit.pipelines.views.recipe import ORDERS, column
from viewkit.shards.errors import ConfigError

FLAGS = ("-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC")
PARAMETERS = 20
"""Floats of the C struct `View`: flip, steps, 5 kinds, 5 factors, radius, threshold, 3 scales, 3 shifts."""
GREY = 4


@dataclass(frozen=True)
class Kernels:
    """The loaded library."""

    library: ctypes.CDLL
    path: Path


def _cache_folder() -> Path:
    """The user's own cache folder; nobody else may write there, since what it holds is executed."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "viewkit"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise ConfigError(f"compiled kernels: {folder} cannot be made ({error.strerror}); set XDG_CACHE_HOME") from None
    if os.name == "posix" and (folder.stat().st_uid != os.getuid() or folder.stat().st_mode & 0o022):
        raise ConfigError(f"compiled kernels: others may write to {folder}; make it your own (chmod 700) and retry")
    return folder


def _processor() -> str:
    """What `-march=native` depends on: the instruction sets, not only the architecture."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = ("model name", "flags", "Features", "CPU part")
    return "\n".join([platform.machine(), *sorted({line for line in lines if line.startswith(names)})])


@cache
def load_kernels() -> Kernels:
    """Build the kernels where the cache does not hold them yet, and load them.

    Raises `ConfigError` where there is no C compiler, or where it fails.
    """
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise ConfigError("compiled kernels: no C compiler found (cc, gcc or clang); install one or render without")
    source = Path(__file__).with_name("kernels.c")
    told = "\n".join([compiler, " ".join(FLAGS), _processor()]).encode()
    digest = hashlib.sha256(source.read_bytes() + told).hexdigest()[:16]
    path = _cache_folder() / f"kernels-{digest}.so"
    if not path.exists():
        part = path.with_name(f"{path.name}.{os.getpid()}.part")
        command = [*compiler.split(), *FLAGS, "-o", str(part), str(source)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            raise ConfigError(f"compiled kernels: {compiler} cannot be run ({error.strerror}); set CC") from None
        if done.returncode:
            last = done.stderr.strip().splitlines()[-1:] or ["no message"]
            raise ConfigError(f"compiled kernels: {compiler} failed ({last[0]}); render without them")
        part.replace(path)
    return Kernels(ctypes.CDLL(str(path)), path)


def view_parameters(
    recipes: Float[np.ndarray, "m p"], side_px: int, mean: Colour, std: Colour
) -> tuple[Float[np.ndarray, "m 20"], Float[np.ndarray, "m taps"]]:
    """What `kernels.c` needs of every recipe, and the blur's weights (the centre and one side)."""
    rows = recipes.tolist()
    place = {name: column(name) for name in ("flip", "grey", "order", "brightness", "sigma", "side", "solarize")}
    sigmas = [row[place["sigma"]] * side_px / row[place["side"]] for row in rows]
    radii = [radius_of(sigma, side_px) if sigma > 0 else 0 for sigma in sigmas]
    taps = np.zeros((len(rows), max(radii, default=0) + 1), dtype=np.float32)
    numbers = np.zeros((len(rows), PARAMETERS), dtype=np.float32)
    for index, (row, sigma, radius) in enumerate(zip(rows, sigmas, radii, strict=True)):
        if radius:
            taps[index, : radius + 1] = kernel(sigma, radius)[radius:]
        steps = [(GREY, 0.0)] if row[place["grey"]] == 2 else []
        for operation in ORDERS[int(row[place["order"]])]:
            factor = row[place["brightness"] + operation]
            if factor != (0.0 if operation == 3 else 1.0):
                steps.append((operation, factor))
        if row[place["grey"]] == 1:
            steps.append((GREY, 0.0))
        numbers[index, 0], numbers[index, 1] = row[place["flip"]], len(steps)
        for at, (operation, factor) in enumerate(steps):
            numbers[index, 2 + at], numbers[index, 7 + at] = operation, factor
        numbers[index, 12], numbers[index, 13] = radius, row[place["solarize"]] * WHITE
    numbers[:, 14:17] = [1 / (WHITE * part) for part in std]
    numbers[:, 17:20] = [middle / part for middle, part in zip(mean, std, strict=True)]
    return numbers, taps


def finish_views(
    kernels: Kernels,
    pixels: Tensor,
    numbers: Float[np.ndarray, "m 20"],
    taps: Float[np.ndarray, "m taps"],
    places: Int[np.ndarray, " m"],
    out: Float[Tensor, "k 3 s s"],
    *,
    view_stride: int,
    channel_stride: int,
) -> None:
    """Everything after the resize for m views, into out[places]. pixels: uint8 or float32, 0-255; rows contiguous."""
    side = out.shape[-1]
    scratch = torch.empty(side * side + 3 * side)
    kernels.library.viewkit_finish(
        ctypes.c_void_p(pixels.data_ptr()),
        ctypes.c_int32(pixels.dtype == torch.uint8),
        ctypes.c_int64(view_stride),
        ctypes.c_int64(channel_stride),
        ctypes.c_int64(len(numbers)),
        ctypes.c_int32(side),
        ctypes.c_void_p(numbers.ctypes.data),
        ctypes.c_void_p(taps.ctypes.data),
        ctypes.c_int64(taps.shape[1]),
        ctypes.c_void_p(scratch.data_ptr()),
        ctypes.c_void_p(out.data_ptr()),
        ctypes.c_void_p(places.ctypes.data),
    )

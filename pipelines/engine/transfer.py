"""Arrays to the device without a wait.

A plain copy to a GPU ends with a wait for everything that was started on it before, so one in a training step costs
the time that the host could have worked ahead. From pinned memory a copy is queued like any kernel.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Num
from torch import Tensor


def to_device(values: Num[np.ndarray, "*shape"] | Num[Tensor, "*shape"], device: Any) -> Num[Tensor, "*shape"]:
    """The same numbers on the device; on a CPU the same memory. They must not be changed before the copy has run."""
    tensor = torch.from_numpy(values) if isinstance(values, np.ndarray) else values
    if torch.device(device).type == "cuda" and tensor.device.type == "cpu":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


def images_to_device(images: Sequence[Num[Tensor, "_h _w 3"]], device: Any) -> list[Num[Tensor, "_h _w 3"]]:
    """Images of one dtype in one copy, as parts of one block; on a CPU they are left as they are."""
    if torch.device(device).type == "cpu" or not images:
        return [image.to(device) for image in images]
    block = to_device(torch.cat([image.reshape(-1) for image in images]), device)
    parts = block.split([image.numel() for image in images])
    return [part.view(image.shape) for part, image in zip(parts, images, strict=True)]

"""What a view of generator `own` costs: passes of its network, counted on one."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from viewkit.pipelines.training.cost import counting
from viewkit.pipelines.weights.cards import GENERATORS

VIEWS = 4
"""Views of the pass that is counted and timed."""


def num_passes(options: Mapping[str, Any]) -> int:
    """Passes of the network for one view: one a step, and one more where guidance acts. options: of `generate`."""
    steps, scale = int(options["steps"]), options["guidance"] or GENERATORS["own"].guidance
    start, stop = options["guidance_start"] * steps, options["guidance_stop"] * steps
    return steps + (sum(start <= step < stop for step in range(steps)) if scale > 1 else 0)


def cost_of_own_view(folder: Path, options: Mapping[str, Any], device: str) -> tuple[float, float]:
    """(operations, seconds in fp32) of one view. folder: of the generator. options: of the identity of the column.

    Embedding, encoding and writing are not in it.
    """
    from diffusers import AutoencoderKL, UNet2DConditionModel

    unet = (
        UNet2DConditionModel.from_pretrained(folder / "unet", local_files_only=True, low_cpu_mem_usage=False)
        .eval()
        .to(device)
    )
    config = unet.config
    latents = torch.zeros(VIEWS, config.in_channels, config.sample_size, config.sample_size, device=device)
    condition = torch.zeros(VIEWS, config.projection_class_embeddings_input_dim, device=device)
    flops, seconds = _measured(unet, lambda: unet(latents, 0, None, class_labels=condition), device)
    passes = num_passes(options)
    flops, seconds = passes * flops, passes * seconds
    if (folder / "vae").is_dir():
        autoencoder = (
            AutoencoderKL.from_pretrained(folder / "vae", local_files_only=True, low_cpu_mem_usage=False)
            .eval()
            .to(device)
        )
        decoding, decoding_s = _measured(autoencoder, lambda: autoencoder.decode(latents), device)
        flops, seconds = flops + decoding, seconds + decoding_s
    return flops, seconds


@torch.inference_mode()
def _measured(network: nn.Module, act: Callable[[], Any], device: str) -> tuple[float, float]:
    """Operations and seconds a view."""
    with counting(network) as found:
        act()
    started = time.perf_counter()
    act()
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize()
    return found.flops / VIEWS, (time.perf_counter() - started) / VIEWS

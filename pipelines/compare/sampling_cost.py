"""What a view of generator `own` costs: its networks run once, as `generate` samples them."""

import time
from collections.abc import Mapping
from typing import Any

import torch

from viewkit.pipelines.encoders.open import open_encoder
from viewkit.pipelines.engine.config import make_config
from viewkit.pipelines.generate.config import GenerateConfig
from viewkit.pipelines.generate.generators.own import Own
from viewkit.pipelines.generate.generators.sampling import Sampling
from viewkit.pipelines.generate.generators.unclip import noise_space
from viewkit.pipelines.generate.own.config import CONDITION
from viewkit.pipelines.generate.own.network import open_own_folder
from viewkit.pipelines.training.cost import counting
from viewkit.shards.dataset import Dataset

VIEWS = 4
"""Views that are sampled together."""


def cost_of_own_view(dataset: Dataset, options: Mapping[str, Any], device: str) -> tuple[float, float]:
    """(operations, seconds in fp32) of one view. options: of the identity of its column.

    Steps, guidance and their share are the column's; embedding, encoding and writing are not in it.
    """
    config = make_config(GenerateConfig, dict(options), "generate")
    artifact = dataset.artifact("generator")
    folder = open_own_folder(artifact.whole_folder())
    encoder = open_encoder(CONDITION, dataset, device=device)
    networks = Own.load(folder, encoder.width, "fp32", config.solver)
    sampling = Sampling.of(config)
    own = Own(networks, noise_space(folder, encoder.width), encoder, sampling, device)
    condition, latents = torch.zeros(VIEWS, 2 * encoder.width), torch.zeros(VIEWS, *own.latent_shape)
    with counting(networks.unet) as found:
        own.pixels(condition, latents)
    started = time.perf_counter()
    own.pixels(condition, latents)
    return found.flops / VIEWS, (time.perf_counter() - started) / VIEWS

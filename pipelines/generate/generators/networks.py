"""The networks of a latent diffusion generator, loaded from its folder."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from viewkit.pipelines.encoders.encoder import DTYPES
from viewkit.pipelines.weights.folder import PipelineFolder, load_part


@dataclass(frozen=True)
class Networks:
    """unet, autoencoder, scheduler: of diffusers; the scheduler is copied before use. prompt: text embedding of the
    empty prompt, for a UNet that takes text."""

    unet: Any
    autoencoder: Any
    scheduler: Any
    prompt: Float[Tensor, "1 t c"] | None = None


def load_unet(folder: PipelineFolder, precision: str) -> Any:
    from diffusers import UNet2DConditionModel

    dtype = DTYPES[precision]
    return load_part(UNet2DConditionModel, folder, "unet", torch_dtype=dtype, low_cpu_mem_usage=False)


def load_autoencoder(kind: Any, folder: PipelineFolder, part: str, precision: str) -> Any:
    """An autoencoder of diffusers. In fp32 also for bf16, which keeps 8 bits of a pixel."""
    dtype = torch.float32 if precision == "bf16" else DTYPES[precision]
    return load_part(kind, folder, part, torch_dtype=dtype, low_cpu_mem_usage=False)


@torch.inference_mode()
def embed_empty_prompt(folder: PipelineFolder) -> Float[Tensor, "1 t c"]:
    """The text embedding of "", computed once, in fp32; neither text encoder nor tokenizer is kept."""
    from transformers import CLIPTextModel, CLIPTokenizer

    tokenizer = CLIPTokenizer.from_pretrained(folder.path / "tokenizer", local_files_only=True)
    encoder = load_part(CLIPTextModel, folder, "text_encoder", dtype=torch.float32)
    length = tokenizer.model_max_length
    ids = tokenizer([""], padding="max_length", max_length=length, truncation=True, return_tensors="pt")
    mask = ids.attention_mask if getattr(encoder.config, "use_attention_mask", False) else None
    embedding: Tensor = encoder(ids.input_ids, attention_mask=mask)[0]
    return embedding

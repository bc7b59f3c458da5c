"""The text embedding of the empty prompt, for pipelines that take a text which is not wanted."""

import torch
from jaxtyping import Float
from torch import Tensor

from viewkit.pipelines.generate.pipeline_folder import PipelineFolder, load_part


@torch.inference_mode()
def embed_nothing(folder: PipelineFolder) -> Float[Tensor, "1 t c"]:
    """Computed once, in fp32; neither text encoder nor tokenizer is kept."""
    from transformers import CLIPTextModel, CLIPTokenizer

    tokenizer = CLIPTokenizer.from_pretrained(folder.path / "tokenizer", local_files_only=True)
    encoder = load_part(CLIPTextModel, folder, "text_encoder", dtype=torch.float32)
    length = tokenizer.model_max_length
    ids = tokenizer([""], padding="max_length", max_length=length, truncation=True, return_tensors="pt")
    mask = ids.attention_mask if getattr(encoder.config, "use_attention_mask", False) else None
    embedding: Tensor = encoder(ids.input_ids, attention_mask=mask)[0]
    return embedding

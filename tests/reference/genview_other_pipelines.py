"""Tiny pipelines with random weights, saved as folders: Kandinsky 2.2, Stable Diffusion with an IP-Adapter. 32 px."""

import json

import torch
from reference.genview_pipeline import tiny_pipeline

WIDTH = 32


def tiny_vision():
    from transformers import CLIPVisionConfig, CLIPVisionModelWithProjection

    config = CLIPVisionConfig(
        hidden_size=32,
        intermediate_size=64,
        projection_dim=WIDTH,
        num_hidden_layers=2,
        num_attention_heads=4,
        image_size=32,
        patch_size=8,
        hidden_act="gelu",
    )
    return CLIPVisionModelWithProjection(config).eval()


def kandinsky_folder(path, *, learned=True, seed=0):
    """A folder as two downloads leave it; returns the stock pipeline of its decoder."""
    from diffusers import DDPMScheduler, KandinskyV22Pipeline, UNet2DConditionModel, VQModel
    from transformers import CLIPImageProcessor

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        unet = UNet2DConditionModel(
            sample_size=16,
            in_channels=4,
            out_channels=8,
            addition_embed_type="image",
            down_block_types=("ResnetDownsampleBlock2D", "SimpleCrossAttnDownBlock2D"),
            up_block_types=("SimpleCrossAttnUpBlock2D", "ResnetUpsampleBlock2D"),
            mid_block_type="UNetMidBlock2DSimpleCrossAttn",
            block_out_channels=(32, 64),
            layers_per_block=1,
            norm_num_groups=16,
            encoder_hid_dim=WIDTH,
            encoder_hid_dim_type="image_proj",
            cross_attention_dim=32,
            attention_head_dim=4,
            resnet_time_scale_shift="scale_shift",
        ).eval()
        movq = VQModel(
            block_out_channels=(32, 64),
            down_block_types=("DownEncoderBlock2D", "DownEncoderBlock2D"),
            up_block_types=("UpDecoderBlock2D", "UpDecoderBlock2D"),
            layers_per_block=1,
            latent_channels=4,
            norm_num_groups=8,
            norm_type="spatial",
            num_vq_embeddings=12,
            vq_embed_dim=4,
        ).eval()
        scheduler = DDPMScheduler(
            beta_schedule="linear",
            beta_start=0.00085,
            beta_end=0.012,
            clip_sample=False,
            thresholding=learned,
            sample_max_value=2.0,
            variance_type="learned_range" if learned else "fixed_small",
        )
        pipeline = KandinskyV22Pipeline(unet, scheduler, movq)
        pipeline.save_pretrained(path)
        tiny_vision().save_pretrained(path / "image_encoder")
    processor = CLIPImageProcessor(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})
    processor.save_pretrained(path / "image_processor")
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def ip_adapter_folder(path, seed=0):
    """A Stable Diffusion folder with `models` beside its parts; returns the stock pipeline with the adapter loaded."""
    from diffusers import StableDiffusionPipeline, UNet2DConditionModel
    from safetensors.torch import save_file

    unclip = tiny_pipeline(seed)
    config = {name: value for name, value in unclip.unet.config.items() if not name.startswith("_")}
    config |= {"sample_size": 16, "class_embed_type": None, "projection_class_embeddings_input_dim": None}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        unet = UNet2DConditionModel.from_config(config).eval()
        scheduler = unclip.scheduler.__class__.from_config(unclip.scheduler.config, prediction_type="epsilon")
        pipeline = StableDiffusionPipeline(
            vae=unclip.vae,
            text_encoder=unclip.text_encoder,
            tokenizer=unclip.tokenizer,
            unet=unet,
            scheduler=scheduler,
            safety_checker=None,
            feature_extractor=None,
            requires_safety_checker=False,
        )
        pipeline.save_pretrained(path)
        encoder = path / "models" / "image_encoder"
        tiny_vision().save_pretrained(encoder)
        adapter = random_adapter(unet)
        flat = {f"{group}.{name}": tensor for group, part in adapter.items() for name, tensor in part.items()}
        save_file(flat, path / "models" / "ip-adapter_tiny.safetensors")
    pipeline.load_ip_adapter(adapter, subfolder="", weight_name="", image_encoder_folder=None, low_cpu_mem_usage=False)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def random_adapter(unet):
    """Weights of a plain adapter: four tokens from an embedding, and a pair of projections a cross-attention."""
    width = unet.config.cross_attention_dim
    projections, number = {}, 1
    for name, processor in unet.attn_processors.items():
        if not name.endswith("attn1.processor"):
            module = unet.get_submodule(name.removesuffix(".processor"))
            for which in ("to_k_ip", "to_v_ip"):
                projections[f"{number}.{which}.weight"] = torch.randn(module.to_k.weight.shape) / width**0.5
            number += 2
        del processor
    image = {
        "proj.weight": torch.randn(4 * width, WIDTH) / WIDTH**0.5,
        "proj.bias": torch.zeros(4 * width),
        "norm.weight": torch.ones(width),
        "norm.bias": torch.zeros(width),
    }
    return {"image_proj": image, "ip_adapter": projections}


def write_json(path, **changes):
    """Change entries of a JSON file."""
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))

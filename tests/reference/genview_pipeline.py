"""Stable unCLIP pipelines with random weights: a tiny one of 1.2 million parameters, and one of the published size."""

import torch


def tiny_pipeline(seed=0):
    """The stock pipeline, to be saved as a folder or called; every component has its real class."""
    from diffusers import (
        AutoencoderKL,
        DDPMScheduler,
        PNDMScheduler,
        StableUnCLIPImg2ImgPipeline,
        UNet2DConditionModel,
    )
    from diffusers.pipelines.stable_diffusion.stable_unclip_image_normalizer import StableUnCLIPImageNormalizer
    from transformers import (
        CLIPImageProcessor,
        CLIPTextConfig,
        CLIPTextModel,
        CLIPTokenizer,
        CLIPVisionConfig,
        CLIPVisionModelWithProjection,
    )

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        vision = CLIPVisionConfig(
            hidden_size=32,
            intermediate_size=64,
            projection_dim=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            image_size=32,
            patch_size=8,
            hidden_act="gelu",
        )
        text = CLIPTextConfig(
            vocab_size=2,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=1,
            num_attention_heads=4,
            max_position_embeddings=8,
            bos_token_id=0,
            eos_token_id=1,
            pad_token_id=1,
        )
        normaliser = StableUnCLIPImageNormalizer(embedding_dim=32)
        normaliser.mean.data.normal_(0, 0.1)
        normaliser.std.data.uniform_(0.5, 1.5)
        pipeline = StableUnCLIPImg2ImgPipeline(
            feature_extractor=CLIPImageProcessor(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}),
            image_encoder=CLIPVisionModelWithProjection(vision).eval(),
            image_normalizer=normaliser,
            image_noising_scheduler=DDPMScheduler(beta_schedule="squaredcos_cap_v2"),
            tokenizer=CLIPTokenizer(
                vocab={"<|startoftext|>": 0, "<|endoftext|>": 1},
                merges=[],
                unk_token="<|endoftext|>",
                bos_token="<|startoftext|>",
                eos_token="<|endoftext|>",
                pad_token="<|endoftext|>",
                model_max_length=8,
            ),
            text_encoder=CLIPTextModel(text).eval(),
            unet=UNet2DConditionModel(
                sample_size=32,
                in_channels=4,
                out_channels=4,
                down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
                up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
                block_out_channels=(32, 64),
                layers_per_block=1,
                norm_num_groups=16,
                attention_head_dim=(2, 4),
                cross_attention_dim=32,
                class_embed_type="projection",
                projection_class_embeddings_input_dim=64,
                use_linear_projection=True,
            ).eval(),
            scheduler=PNDMScheduler(
                beta_start=0.00085,
                beta_end=0.012,
                beta_schedule="scaled_linear",
                prediction_type="v_prediction",
                skip_prk_steps=True,
                steps_offset=1,
                set_alpha_to_one=False,
            ),
            vae=AutoencoderKL(
                down_block_types=("DownEncoderBlock2D",) * 2,
                up_block_types=("UpDecoderBlock2D",) * 2,
                block_out_channels=(16, 32),
                layers_per_block=1,
                norm_num_groups=16,
                latent_channels=4,
            ).eval(),
        )
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def full_size_pipeline(seed=0, text_layers=1):
    """UNet (870 M), image encoder (632 M), VAE and schedulers as published; 2.0 of 2.4 billion parameters with one
    layer of the text encoder, which sees the empty prompt only."""
    from diffusers import (
        AutoencoderKL,
        DDPMScheduler,
        PNDMScheduler,
        StableUnCLIPImg2ImgPipeline,
        UNet2DConditionModel,
    )
    from diffusers.pipelines.stable_diffusion.stable_unclip_image_normalizer import StableUnCLIPImageNormalizer
    from transformers import (
        CLIPImageProcessor,
        CLIPTextConfig,
        CLIPTextModel,
        CLIPVisionConfig,
        CLIPVisionModelWithProjection,
    )

    tiny = tiny_pipeline()
    tiny.tokenizer.model_max_length = 77
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        vision = CLIPVisionConfig(
            hidden_size=1280,
            intermediate_size=5120,
            projection_dim=1024,
            num_hidden_layers=32,
            num_attention_heads=16,
            image_size=224,
            patch_size=14,
            hidden_act="gelu",
        )
        text = CLIPTextConfig(
            vocab_size=2,
            hidden_size=1024,
            intermediate_size=4096,
            num_hidden_layers=text_layers,
            num_attention_heads=16,
            max_position_embeddings=77,
            bos_token_id=0,
            eos_token_id=1,
            pad_token_id=1,
        )
        blocks = ("CrossAttnDownBlock2D",) * 3 + ("DownBlock2D",)
        pipeline = StableUnCLIPImg2ImgPipeline(
            feature_extractor=CLIPImageProcessor(size={"shortest_edge": 224}, crop_size={"height": 224, "width": 224}),
            image_encoder=CLIPVisionModelWithProjection(vision).eval(),
            image_normalizer=StableUnCLIPImageNormalizer(embedding_dim=1024),
            image_noising_scheduler=DDPMScheduler(beta_schedule="squaredcos_cap_v2"),
            tokenizer=tiny.tokenizer,
            text_encoder=CLIPTextModel(text).eval(),
            unet=UNet2DConditionModel(
                sample_size=96,
                in_channels=4,
                out_channels=4,
                down_block_types=blocks,
                up_block_types=("UpBlock2D",) + ("CrossAttnUpBlock2D",) * 3,
                block_out_channels=(320, 640, 1280, 1280),
                layers_per_block=2,
                attention_head_dim=(5, 10, 20, 20),
                cross_attention_dim=1024,
                class_embed_type="projection",
                projection_class_embeddings_input_dim=2048,
                use_linear_projection=True,
                upcast_attention=True,
            ).eval(),
            scheduler=PNDMScheduler.from_config(tiny.scheduler.config),
            vae=AutoencoderKL(
                down_block_types=("DownEncoderBlock2D",) * 4,
                up_block_types=("UpDecoderBlock2D",) * 4,
                block_out_channels=(128, 256, 512, 512),
                layers_per_block=2,
                latent_channels=4,
                sample_size=768,
            ).eval(),
        )
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def stock_images(pipeline, images, level, generators, *, steps, guidance=10.0, side_px=None):
    """Images of one level through the stock pipeline; uint8 [n h w 3]."""
    import numpy as np
    from PIL import Image

    out = pipeline(
        [Image.fromarray(image) for image in images],
        prompt=[""] * len(images),
        noise_level=level,
        num_inference_steps=steps,
        guidance_scale=guidance,
        generator=list(generators),
        height=side_px,
        width=side_px,
    )
    return np.stack([np.asarray(image) for image in out.images])


def stock_image(pipeline, image, level, generator, *, steps, guidance=10.0, side_px=None):
    """One image, the way the release calls the pipeline; uint8 [h w 3]."""
    return stock_images(pipeline, [image], level, [generator], steps=steps, guidance=guidance, side_px=side_px)[0]


def own_parts(pipeline):
    """The pipeline's own networks and noise space as our loop takes them: no second copy, and no folder."""
    from viewkit.pipelines.generate.generators.networks import Networks
    from viewkit.pipelines.generate.noising import NoiseSpace

    width = pipeline.image_normalizer.mean.numel()
    with torch.inference_mode():
        prompt = pipeline.encode_prompt("", torch.device("cpu"), 1, False)[0]
    space = NoiseSpace(
        mean=pipeline.image_normalizer.mean.detach().float().reshape(width),
        std=pipeline.image_normalizer.std.detach().float().reshape(width),
        abar=pipeline.image_noising_scheduler.alphas_cumprod.float(),
    )
    return Networks(pipeline.unet, pipeline.vae, pipeline.scheduler, prompt), space


def pipeline_noise(seeds, width, latent_shape):
    """Embedding noise and latents of each seed, in the order the stock pipeline draws them."""
    drawn = []
    for seed in seeds:
        generator = torch.Generator().manual_seed(seed)
        drawn.append([torch.randn(shape, generator=generator) for shape in ((1, width), (1, *latent_shape))])
    noise, latents = zip(*drawn, strict=True)
    return torch.cat(noise), torch.cat(latents)

"""A tiny Stable unCLIP pipeline with random weights: 1.2 million parameters, 64 px, made in a moment."""

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


def stock_image(pipeline, image, level, generator, *, steps, guidance=10.0):
    """One image through the stock pipeline, the way the release calls it; uint8 [h w 3]."""
    import numpy as np
    from PIL import Image

    out = pipeline(
        [Image.fromarray(image)],
        prompt=[""],
        noise_level=level,
        num_inference_steps=steps,
        guidance_scale=guidance,
        generator=[generator],
    )
    return np.asarray(out.images[0])

"""Stable unCLIP: our loop against the stock pipeline, one image at a time, on a tiny random one."""

import json
import shutil

import numpy as np
import pytest
import torch
from reference.genview_pipeline import stock_image, tiny_pipeline
from safetensors.torch import load_file, save_file

from viewkit.pipelines.generate.encoders import UnclipEncoder, create_encoder
from viewkit.pipelines.generate.generators.face import Failed, Generated
from viewkit.pipelines.generate.generators.unclip import Unclip
from viewkit.pipelines.generate.unclip_folder import UnclipFolder
from viewkit.shards.codecs import decode_image
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ConfigError, DataError

LEVELS = [0, 100, 200, 400]
STEPS = 2


@pytest.fixture(scope="module")
def pipeline():
    return tiny_pipeline()


@pytest.fixture(scope="module")
def folder(pipeline, tmp_path_factory):
    path = tmp_path_factory.mktemp("unclip")
    pipeline.save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def encoder(folder):
    return UnclipEncoder(UnclipFolder(folder), "cpu", "fp32")


@pytest.fixture(scope="module")
def images():
    return list(np.random.default_rng(0).integers(0, 256, (4, 32, 32, 3), dtype=np.uint8))


def make(folder, encoder, **options):
    return Unclip(UnclipFolder(folder), encoder, "cpu", **{"steps": STEPS, "output_px": 64, **options})


def noise_of(unclip, seeds):
    """Embedding noise and latents of each seed, in the order the stock pipeline draws them."""
    drawn = []
    for seed in seeds:
        generator = torch.Generator().manual_seed(seed)
        drawn.append([torch.randn(s, generator=generator) for s in ((1, 32), (1, *unclip.latent_shape))])
    noise, latents = zip(*drawn, strict=True)
    return torch.cat(noise), torch.cat(latents)


def own_images(unclip, images, levels):
    noise, latents = noise_of(unclip, range(len(images)))
    conditioning = unclip.perturb(unclip.condition(images), torch.tensor(levels), noise)
    pixels, finite = unclip.pixels(conditioning, latents)
    assert finite.all()
    return pixels


@pytest.mark.parametrize("guidance", [10.0, 1.0])
def test_a_batch_of_mixed_levels_equals_the_stock_pipeline_one_image_at_a_time(
    pipeline, folder, encoder, images, guidance
):
    ours = own_images(make(folder, encoder, guidance=guidance), images, LEVELS)
    for i, level in enumerate(LEVELS):
        generator = torch.Generator().manual_seed(i)
        stock = stock_image(pipeline, images[i], level, generator, steps=STEPS, guidance=guidance)
        difference = np.abs(stock.astype(int) - ours[i].astype(int))
        assert difference.max() <= 1
        assert difference.mean() < 0.01


def test_levels_differ_so_that_the_comparison_means_something(folder, encoder, images):
    unclip = make(folder, encoder)
    noise, latents = noise_of(unclip, [0] * 4)
    conditioning = unclip.perturb(unclip.condition([images[0]] * 4), torch.tensor(LEVELS), noise)
    pixels, _ = unclip.pixels(conditioning, latents)
    assert min(np.abs(pixels[i].astype(int) - pixels[i + 1]).mean() for i in range(3)) > 1


def test_permuting_a_batch_permutes_the_images_bit_for_bit(folder, encoder, images):
    unclip = make(folder, encoder, steps=1)
    rows = [*range(4), 0, 1]  # six rows: the last micro-batch of the decoder is filled up
    noise, latents = noise_of(unclip, range(6))
    levels = torch.tensor([0, 100, 200, 300, 400, 999])
    conditioning = unclip.perturb(unclip.condition([images[i] for i in rows]), levels, noise)
    pixels, _ = unclip.pixels(conditioning, latents)
    order = [4, 2, 0, 5, 1, 3]
    permuted, _ = unclip.pixels(conditioning[order], latents[order])
    np.testing.assert_array_equal(permuted, pixels[order])


@pytest.mark.parametrize("solver", ["pndm", "dpmsolver++", "unipc", "ddim"])
def test_every_solver_gives_finite_images_and_keeps_v_prediction(folder, encoder, images, solver):
    unclip = make(folder, encoder, solver=solver)
    assert unclip.scheduler.config.prediction_type == "v_prediction"
    assert own_images(unclip, images[:2], [0, 400]).std() > 2


def test_noise_levels_are_those_of_the_checkpoints_scheduler(folder, encoder, tmp_path):
    expected = [0.971576, 0.897763, 0.785632, 0.645988]
    np.testing.assert_allclose(make(folder, encoder).abar[[100, 200, 300, 400]], expected, atol=1e-6)
    other = shutil.copytree(folder, tmp_path / "linear")
    settings = other / "image_noising_scheduler" / "scheduler_config.json"
    content = json.loads(settings.read_text())
    settings.write_text(json.dumps({**content, "beta_schedule": "linear"}))
    np.testing.assert_allclose(make(other, encoder).abar[[100, 400]], [0.895141, 0.193572], atol=1e-5)


def test_the_encoder_gives_the_stock_embedding_and_normed_tokens(pipeline, encoder, images):
    x = torch.stack([encoder.preprocess(image) for image in images])
    with torch.inference_mode():
        stock = pipeline.image_encoder(x)
        tokens = pipeline.image_encoder.vision_model.post_layernorm(stock.last_hidden_state)[:, 1:]
    ours, embedding = encoder.tokens_and_embedding(images)
    torch.testing.assert_close(embedding, stock.image_embeds)
    torch.testing.assert_close(ours, tokens)
    assert (encoder.grid, encoder.width) == ((4, 4), 32)


def test_preprocessing_equals_the_pillow_processor_of_transformers(pipeline, encoder):
    image = np.random.default_rng(1).integers(0, 256, (57, 90, 3), dtype=np.uint8)
    from PIL import Image

    processor = pipeline.feature_extractor
    if "Pil" not in type(processor).__name__:
        pil = pytest.importorskip("transformers.models.clip.image_processing_pil_clip")
        processor = pil.CLIPImageProcessorPil(**{k: getattr(processor, k) for k in ("size", "crop_size")})
    expected = processor(images=Image.fromarray(image), return_tensors="pt").pixel_values[0]
    torch.testing.assert_close(encoder.preprocess(image), expected, atol=1e-5, rtol=0)


def test_stored_views_are_jpegs_of_the_asked_side(folder, encoder, images):
    unclip = make(folder, encoder, steps=1, output_px=48)
    noise, latents = noise_of(unclip, range(2))
    conditioning = unclip.perturb(unclip.condition(images[:2]), torch.tensor([0, 100]), noise)
    for view in unclip.sample(conditioning, latents, ["a", "b"]):
        assert isinstance(view, Generated)
        assert decode_image(view.fields).shape == (48, 48, 3)


def test_a_row_that_is_not_finite_fails_alone(folder, encoder, images):
    unclip = make(folder, encoder, steps=1)
    noise, latents = noise_of(unclip, range(4))
    conditioning = unclip.perturb(unclip.condition(images), torch.tensor(LEVELS), noise)
    whole, _ = unclip.pixels(conditioning, latents)
    latents[2] = torch.nan
    results = unclip.sample(conditioning, latents, list("abcd"))
    assert [getattr(result, "reason", "") for result in results] == ["", "", "non_finite", ""]
    pixels, _ = unclip.pixels(conditioning, latents)
    np.testing.assert_array_equal(pixels[[0, 1, 3]], whole[[0, 1, 3]])


def test_a_constant_picture_fails(folder, encoder, images):
    unclip = make(folder, encoder, steps=1)
    unclip.decode = lambda x: torch.full((len(x), 3, 64, 64), 0.5)
    noise, latents = noise_of(unclip, [0])
    conditioning = unclip.perturb(unclip.condition(images[:1]), torch.tensor([0]), noise)
    assert unclip.sample(conditioning, latents, ["a"]) == [
        Failed("near_constant", "standard deviation 0.00 grey levels")
    ]


def test_bf16_decodes_in_fp32_and_gives_nearly_the_same_pictures(folder, encoder, images):
    half = make(folder, encoder, precision="bf16")
    assert half.vae.dtype == torch.float32
    difference = own_images(half, images, LEVELS).astype(int) - own_images(make(folder, encoder), images, LEVELS)
    assert np.abs(difference).mean() < 12


def test_only_safetensors_are_read_and_their_digests_are_known(folder):
    digests = UnclipFolder(folder).digests()
    assert {"weights/unet/diffusion_pytorch_model.safetensors", "weights/scheduler/scheduler_config.json"} <= set(
        digests
    )
    assert all(len(value) == 64 for value in digests.values())


def test_a_half_precision_variant_is_found(folder, tmp_path):
    other = shutil.copytree(folder, tmp_path / "variant")
    plain = other / "unet" / "diffusion_pytorch_model.safetensors"
    plain.rename(plain.with_name("diffusion_pytorch_model.fp16.safetensors"))
    assert UnclipFolder(other).weights("unet")[1] == "fp16"


def edit(path, **changes):
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def cut(path):
    path.write_bytes(path.read_bytes()[:-100])


def drop_tensor(path):
    tensors = load_file(path)
    tensors.pop(sorted(tensors)[0])
    save_file(tensors, path, metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: shutil.rmtree(f), "there is no such folder"),
        (lambda f: (f / "model_index.json").unlink(), "no complete Stable unCLIP folder"),
        (
            lambda f: edit(f / "model_index.json", _class_name="StableDiffusionPipeline"),
            "holds a StableDiffusionPipeline",
        ),
        (lambda f: (f / "unet" / "config.json").write_text("{"), "cannot be read"),
        (lambda f: (f / "vae" / "diffusion_pytorch_model.safetensors").unlink(), "holds no diffusion_pytorch_model"),
        (
            lambda f: (f / "vae/diffusion_pytorch_model.safetensors").rename(f / "vae/diffusion_pytorch_model.bin"),
            "as a pickle",
        ),
        (lambda f: edit(f / "unet" / "config.json", class_embed_type=None), "no Stable unCLIP"),
        (lambda f: edit(f / "image_normalizer" / "config.json", embedding_dim=77), "parts of different pipelines"),
        (lambda f: edit(f / "scheduler" / "scheduler_config.json", _class_name="Nonsense"), "unknown scheduler"),
        (lambda f: cut(f / "unet" / "diffusion_pytorch_model.safetensors"), "cannot be loaded"),
        (lambda f: drop_tensor(f / "unet" / "diffusion_pytorch_model.safetensors"), "lacks 1 tensors"),
        (lambda f: drop_tensor(f / "text_encoder" / "model.safetensors"), "lacks 1 tensors"),
        (lambda f: shutil.rmtree(f / "tokenizer"), "tokenizer_config.json: missing"),
    ],
)
def test_a_bad_folder_is_one_clear_line(folder, encoder, tmp_path, damage, message):
    path = shutil.copytree(folder, tmp_path / "bad")
    damage(path)
    with pytest.raises(DataError, match=message) as caught:
        make(path, encoder)
    assert "\n" not in str(caught.value)


def test_a_side_the_network_cannot_draw_is_refused(folder, encoder):
    with pytest.raises(ConfigError, match="multiple of 8"):
        make(folder, encoder, render_px=60)


def test_weights_are_asked_for_when_none_are_given(tmp_path):
    with pytest.raises(ConfigError, match="--weights FOLDER"):
        create_encoder("unclip", Dataset(tmp_path), None, "cpu", "fp32")

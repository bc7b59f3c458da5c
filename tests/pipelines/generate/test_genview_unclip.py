"""Stable unCLIP: our loop against the stock pipeline, one image at a time, on a tiny random one."""

import copy
import io
import json
import shutil

import numpy as np
import pytest
import torch
from reference.genview_pipeline import full_size_pipeline, own_parts, pipeline_noise, stock_image, tiny_pipeline
from safetensors.torch import load_file, save_file

from viewkit.pipelines.encoders.clip_folders import ClipFolderEncoder
from viewkit.pipelines.encoders.open import open_encoder
from viewkit.pipelines.generate.generators.interface import Failed, Generated
from viewkit.pipelines.generate.generators.pictures import outcomes, to_uint8
from viewkit.pipelines.generate.generators.sampling import Guidance, Sampling
from viewkit.pipelines.generate.generators.unclip import ENCODER, Unclip, UnclipFolder, noise_space
from viewkit.shards.codecs import decode_image
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ConfigError, DataError

LEVELS = [0, 100, 200, 400]
STEPS = 2
SIDE = 32
"""Half the tiny pipeline's own, in px: a quarter of the time."""


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
    return ENCODER.create(folder, "cpu", "fp32")


@pytest.fixture(scope="module")
def images():
    return list(np.random.default_rng(0).integers(0, 256, (4, 32, 32, 3), dtype=np.uint8))


def make(folder, encoder, precision="fp32", solver="checkpoint", compiled=False, **sampling):
    opened = UnclipFolder(folder)
    networks = Unclip.load(opened, encoder.width, precision, solver)
    sampling = {"guidance": Guidance(10.0), "steps": STEPS, "render_px": SIDE, "output_px": SIDE, **sampling}
    return Unclip(networks, noise_space(opened, encoder.width), encoder, Sampling(**sampling), compiled=compiled)


def noise_of(unclip, seeds):
    return pipeline_noise(seeds, unclip.encoder.width, unclip.latent_shape)


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
    ours = own_images(make(folder, encoder, guidance=Guidance(guidance)), images, LEVELS)
    for i, level in enumerate(LEVELS):
        generator = torch.Generator().manual_seed(i)
        stock = stock_image(pipeline, images[i], level, generator, steps=STEPS, guidance=guidance, side_px=SIDE)
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


@pytest.mark.parametrize(
    ("solver", "kind", "calls"),
    [
        ("pndm", "PNDMScheduler", 21),
        ("dpmsolver++", "DPMSolverMultistepScheduler", 20),
        ("unipc", "UniPCMultistepScheduler", 20),
        ("ddim", "DDIMScheduler", 20),
    ],
)
def test_every_solver_equals_the_stock_pipeline_with_its_scheduler(
    pipeline, folder, encoder, images, solver, kind, calls
):
    unclip = make(folder, encoder, solver=solver)
    assert unclip.scheduler.config.prediction_type == "v_prediction"
    assert unclip.scheduler.config.beta_start == 0.00085
    ours = own_images(unclip, images[:2], [0, 400])
    own, pipeline.scheduler = pipeline.scheduler, copy.deepcopy(unclip.scheduler)
    try:
        stock = stock_image(pipeline, images[1], 400, torch.Generator().manual_seed(1), steps=STEPS, side_px=SIDE)
    finally:
        pipeline.scheduler = own
    assert np.abs(stock.astype(int) - ours[1]).max() <= 1
    assert type(unclip.scheduler).__name__ == kind
    unclip.scheduler.set_timesteps(20)
    assert len(unclip.scheduler.timesteps) == calls


def test_ddim_does_not_clip_latents_unless_the_folder_says_so(folder, encoder, tmp_path):
    assert not make(folder, encoder, solver="ddim").scheduler.config.clip_sample
    other = shutil.copytree(folder, tmp_path / "clipping")
    edit(other / "scheduler" / "scheduler_config.json", clip_sample=True)
    assert make(other, encoder, solver="ddim").scheduler.config.clip_sample


def test_guidance_acts_in_its_interval_only_and_costs_nothing_outside(folder, encoder, images, monkeypatch):
    unclip = make(folder, encoder, solver="ddim", steps=4, guidance=Guidance(10.0, 0.25, 0.75))
    rows, forward = [], unclip.unet.forward
    monkeypatch.setattr(unclip.unet, "forward", lambda x, *a, **k: rows.append(len(x)) or forward(x, *a, **k))
    own_images(unclip, images[:2], [0, 400])
    assert rows == [2, 4, 4, 2]


def test_an_interval_without_a_step_is_no_guidance(folder, encoder, images):
    nothing = own_images(make(folder, encoder, guidance=Guidance(10.0, 0.1, 0.11)), images, LEVELS)
    np.testing.assert_array_equal(nothing, own_images(make(folder, encoder, guidance=Guidance(1.0)), images, LEVELS))


@pytest.mark.parametrize("rescale", [0.0, 0.7, 1.0])
def test_guidance_rescale_is_that_of_diffusers(rescale):
    from diffusers.pipelines.stable_diffusion.pipeline_stable_diffusion import rescale_noise_cfg

    free, conditioned = torch.randn(2, 3, 4, 8, 8, generator=torch.Generator().manual_seed(0)).unbind()
    expected = free + 10 * (conditioned - free)
    if rescale:
        expected = rescale_noise_cfg(expected, conditioned, guidance_rescale=rescale)
    torch.testing.assert_close(Guidance(10.0, rescale=rescale).combine(free, conditioned), expected)


def test_full_rescale_gives_each_row_the_spread_of_its_conditioned_output():
    free, conditioned = torch.randn(2, 3, 4, 8, 8, generator=torch.Generator().manual_seed(0)).unbind()
    combined = Guidance(10.0, rescale=1.0).combine(free, conditioned)
    torch.testing.assert_close(combined.std(dim=(1, 2, 3)), conditioned.std(dim=(1, 2, 3)))


@pytest.mark.parametrize("size", [2, 4, 8])
def test_the_size_of_a_batch_changes_at_most_one_grey_level(folder, encoder, images, size):
    unclip = make(folder, encoder, steps=1)
    noise, latents = noise_of(unclip, range(8))
    conditioning = unclip.perturb(unclip.condition(images + images), torch.tensor(LEVELS * 2), noise)
    one_by_one = [unclip.pixels(conditioning[i : i + 1], latents[i : i + 1])[0] for i in range(8)]
    parts = [unclip.pixels(conditioning[i : i + size], latents[i : i + size])[0] for i in range(0, 8, size)]
    difference = np.abs(np.concatenate(parts).astype(int) - np.concatenate(one_by_one))
    assert difference.max() <= 1
    assert difference.mean() < 0.01


def test_noise_levels_are_those_of_the_checkpoints_scheduler(folder, encoder, tmp_path):
    expected = [0.971576, 0.897763, 0.785632, 0.645988]
    np.testing.assert_allclose(make(folder, encoder).space.abar[[100, 200, 300, 400]], expected, atol=1e-6)
    other = shutil.copytree(folder, tmp_path / "linear")
    settings = other / "image_noising_scheduler" / "scheduler_config.json"
    content = json.loads(settings.read_text())
    settings.write_text(json.dumps({**content, "beta_schedule": "linear"}))
    np.testing.assert_allclose(make(other, encoder).space.abar[[100, 400]], [0.895141, 0.193572], atol=1e-5)


def test_the_encoder_gives_the_stock_embedding_and_normed_tokens(pipeline, encoder, images):
    x = torch.stack([encoder.preprocess(image) for image in images])
    with torch.inference_mode():
        stock = pipeline.image_encoder(x)
        tokens = pipeline.image_encoder.vision_model.post_layernorm(stock.last_hidden_state)[:, 1:]
    ours, embedding = encoder.encode_images(images)
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
    unclip.decode = lambda x: torch.full((len(x), 3, SIDE, SIDE), 0.5)
    noise, latents = noise_of(unclip, [0])
    conditioning = unclip.perturb(unclip.condition(images[:1]), torch.tensor([0]), noise)
    assert unclip.sample(conditioning, latents, ["a"]) == [
        Failed("near_constant", "standard deviation 0.00 grey levels")
    ]


def test_pictures_are_resized_as_pillow_does_it():
    from PIL import Image

    y, x = np.mgrid[:96, :96] / 96
    waves = [np.sin(6 * x + 3 * k * y) for k in range(3)]
    image = np.round(127.5 + 100 * np.stack(waves, axis=2)).astype(np.uint8)
    ours = to_uint8(torch.from_numpy(image).permute(2, 0, 1)[None] / 255, 64)[0]
    pillow = np.asarray(Image.fromarray(image).resize((64, 64), Image.Resampling.BICUBIC))
    assert np.abs(ours.astype(int) - pillow).max() <= 1


def test_stored_jpegs_keep_all_colour_and_the_asked_quality():
    from PIL import Image, JpegImagePlugin

    pixels = np.random.default_rng(0).integers(0, 256, (1, 64, 64, 3), dtype=np.uint8)
    fine, coarse = (outcomes(pixels, torch.tensor([True]), quality, {"a": 1})[0] for quality in (95, 75))
    for view in (fine, coarse):
        assert JpegImagePlugin.get_sampling(Image.open(io.BytesIO(view.fields["jpg"]))) == 0  # 4:4:4
    assert len(fine.fields["jpg"]) > 1.5 * len(coarse.fields["jpg"])
    assert fine.facts == {"a": 1}


def test_views_are_stored_lossless_as_png_or_small_as_webp():
    pixels = np.add.outer(np.arange(64), np.arange(64))[None, ..., None].repeat(3, axis=3).astype(np.uint8)
    whole, lossy = (outcomes(pixels, torch.tensor([True]), 90, {}, name)[0].fields for name in ("png", "webp"))
    assert set(whole) == {"png"} and np.array_equal(decode_image(whole), pixels[0])
    assert set(lossy) == {"webp"} and np.abs(decode_image(lossy).astype(int) - pixels[0]).mean() < 3


@pytest.mark.parametrize(("precision", "decoder"), [("bf16", torch.float32), ("fp16", torch.float16)])
def test_half_precision_gives_nearly_the_same_pictures(folder, encoder, images, precision, decoder):
    half = make(folder, encoder, precision=precision)
    assert (half.unet.dtype == torch.float32, half.autoencoder.dtype) == (False, decoder)
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


def test_the_side_is_the_folders_own_unless_given(folder, encoder):
    assert make(folder, encoder, render_px=None).latent_shape == (4, 32, 32)


def test_a_side_the_network_cannot_draw_is_refused(folder, encoder):
    with pytest.raises(ConfigError, match="multiple of 8"):
        make(folder, encoder, render_px=60)


def test_levels_outside_the_schedule_are_refused(folder, encoder, images):
    unclip = make(folder, encoder, steps=1)
    noise, _ = noise_of(unclip, [0])
    with pytest.raises(ConfigError, match=r"noise levels must lie in 0 \.\.\. 999"):
        unclip.perturb(unclip.condition(images[:1]), torch.tensor([1000]), noise)


@pytest.mark.parametrize("size", [(1, 1), (1, 4000), (3, 700), (900, 2), (33, 31)])
def test_the_encoder_takes_an_image_of_any_size(encoder, size):
    image = np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8)
    tokens, embedding = encoder.encode_images([image])
    assert (tokens.shape, embedding.shape) == ((1, 16, 32), (1, 32))
    assert tokens.isfinite().all() and embedding.isfinite().all()


def test_a_compiled_generator_takes_batches_of_one_shape(folder, encoder, images, monkeypatch):
    asked = []
    monkeypatch.setattr(torch, "compile", lambda f, **options: asked.append(options) or f)
    unclip = make(folder, encoder, steps=1, compiled=True)
    assert asked == [{"dynamic": False}] * 2
    decoded, decode = [], unclip.decoder
    unclip.decoder = lambda x, **options: decoded.append(len(x)) or decode(x, **options)
    noise, latents = noise_of(unclip, range(6))
    conditioning = unclip.perturb(unclip.condition([*images, *images[:2]]), torch.tensor([0] * 6), noise)
    unclip.pixels(conditioning, latents)
    assert decoded == [4, 4]  # six pictures, the second batch filled up


@pytest.mark.slow
def test_a_compiled_generator_gives_the_same_pictures_to_one_grey_level(folder, encoder, images):
    if shutil.which("g++") is None and shutil.which("c++") is None:
        pytest.skip("torch.compile needs a C++ compiler on a CPU")
    compiled = own_images(make(folder, encoder, compiled=True), images, LEVELS)
    difference = np.abs(compiled.astype(int) - own_images(make(folder, encoder), images, LEVELS))
    assert difference.max() <= 1
    assert difference.mean() < 0.01


@pytest.mark.slow
def test_the_published_architecture_equals_the_stock_pipeline_one_image_at_a_time():
    """Full size, random weights, 128 px, 2 steps (3 network calls): two minutes on two quiet cores, 12 GB."""
    pipeline = full_size_pipeline()
    images = list(np.random.default_rng(0).integers(0, 256, (4, 240, 300, 3), dtype=np.uint8))
    stock = [
        stock_image(pipeline, image, level, torch.Generator().manual_seed(i), steps=STEPS, side_px=128)
        for i, (image, level) in enumerate(zip(images, LEVELS, strict=True))
    ]
    encoder = ClipFolderEncoder.__new__(ClipFolderEncoder)
    vars(encoder)["_shape"] = (16, 16), 1024  # the width is known, and no network is there to ask
    sampling = Sampling(Guidance(10.0), steps=STEPS, render_px=128, output_px=128)
    unclip = Unclip(*own_parts(pipeline), encoder, sampling)
    with torch.inference_mode():
        x = pipeline.feature_extractor(images, return_tensors="pt").pixel_values
        embedding = pipeline.image_encoder(x).image_embeds
    noise, latents = noise_of(unclip, range(4))
    ours, finite = unclip.pixels(unclip.perturb(embedding, torch.tensor(LEVELS), noise), latents)
    assert finite.all()
    assert np.abs(np.stack(stock).astype(int) - ours).max() <= 1
    assert min(image.std() for image in stock) > 2


def test_weights_are_asked_for_when_none_are_given(tmp_path):
    with pytest.raises(ConfigError, match="--weights FOLDER"):
        open_encoder("unclip", Dataset(tmp_path))

"""Generator `kandinsky` against the stock pipeline, on a tiny folder with random weights."""

import shutil

import numpy as np
import pytest
import torch
from reference.genview_other_pipelines import WIDTH, kandinsky_folder, write_json

from viewkit.pipelines.generate.config import GenerateConfig
from viewkit.pipelines.generate.generators.kandinsky import ENCODER, Kandinsky, KandinskyFolder
from viewkit.pipelines.generate.generators.sampling import Guidance, Sampling, step_noise
from viewkit.pipelines.generate.noising import NoiseSpace, squared_cosine
from viewkit.shards.errors import ConfigError, DataError

LEVELS = torch.tensor([0, 100, 200, 400])
STEPS = 2


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("kandinsky")
    return path, kandinsky_folder(path)


def generator_of(path, precision="fp32", solver="checkpoint", **options):
    encoder = ENCODER.create(path, "cpu", "fp32")
    torch.manual_seed(0)
    space = NoiseSpace(torch.randn(WIDTH) / 4, torch.rand(WIDTH) + 0.5, squared_cosine())
    networks = Kandinsky.load(KandinskyFolder(path), WIDTH, precision, solver)
    sampling = {"guidance": Guidance(4.0), "steps": STEPS, "output_px": 32} | options.pop("sampling", {})
    return Kandinsky(networks, space, encoder, Sampling(**sampling), **options)


@pytest.fixture(scope="module")
def generator(folder):
    return generator_of(folder[0])


@pytest.fixture(scope="module")
def inputs(generator):
    """Images, embedding noise and latents of four rows."""
    rng = torch.Generator().manual_seed(1)
    images = list(np.random.default_rng(0).integers(0, 256, (4, 40, 50, 3), dtype=np.uint8))
    noise = torch.randn(4, WIDTH, generator=rng)
    return images, noise, torch.randn(4, *generator.latent_shape, generator=rng)


def stock_images(pipeline, generator, conditioning, latents, guidance=4.0):
    """One image a call of the stock pipeline, with the step noise that ours derives from the latents."""
    side_px = generator.encoder.preprocess.side_px
    with torch.no_grad():
        empty = generator.encoder.model(torch.zeros(1, 3, side_px, side_px)).image_embeds
    return [
        np.asarray(
            pipeline(
                image_embeds=conditioning[i : i + 1],
                negative_image_embeds=empty,
                latents=latents[i : i + 1],
                generator=step_noise(latents[i : i + 1]),
                height=32,
                width=32,
                num_inference_steps=STEPS,
                guidance_scale=guidance,
            ).images[0]
        )
        for i in range(len(latents))
    ]


@pytest.mark.parametrize("guidance", [4.0, 1.0])
def test_a_batch_of_mixed_levels_equals_the_stock_pipeline_one_image_at_a_time(folder, generator, inputs, guidance):
    images, noise, latents = inputs
    ours = generator if guidance == 4.0 else generator_of(folder[0], sampling={"guidance": Guidance(1.0)})
    conditioning = ours.perturb(ours.condition(images), LEVELS, noise)
    pixels, finite = ours.pixels(conditioning, latents)
    assert finite.all()
    expected = stock_images(folder[1], ours, conditioning, latents, guidance)
    assert max(np.abs(a.astype(int) - b.astype(int)).max() for a, b in zip(pixels, expected, strict=True)) <= 1
    assert pixels.std() > 2


def test_a_fixed_variance_is_honoured(tmp_path, inputs):
    pipeline = kandinsky_folder(tmp_path, learned=False)
    ours = generator_of(tmp_path)
    images, noise, latents = inputs
    conditioning = ours.perturb(ours.condition(images), LEVELS, noise)
    expected = stock_images(pipeline, ours, conditioning, latents)
    pixels, _ = ours.pixels(conditioning, latents)
    assert max(np.abs(a.astype(int) - b.astype(int)).max() for a, b in zip(pixels, expected, strict=True)) <= 1


def test_permuting_a_batch_permutes_the_pixels_bit_for_bit(generator, inputs):
    images, noise, latents = inputs
    order = [2, 0, 3, 1]
    one = generator.pixels(generator.perturb(generator.condition(images), LEVELS, noise), latents)[0]
    shuffled = generator.condition([images[i] for i in order])
    other = generator.pixels(generator.perturb(shuffled, LEVELS[order], noise[order]), latents[order])[0]
    np.testing.assert_array_equal(one[order], other)


def test_each_row_has_its_own_strength(generator, inputs):
    images, noise, latents = inputs
    embedding = generator.condition([images[0]] * 4)
    same = noise[:1].expand(4, -1)
    noised = generator.perturb(embedding, torch.tensor([0, 200, 400, 999]), same)
    distance = (noised - embedding).norm(dim=1)
    assert (distance.diff() > 0).all()
    assert distance[0] < 0.1 * distance[3]
    z = (noised[3] - generator.space.mean) / generator.space.std
    torch.testing.assert_close(z, noise[0], atol=1e-3, rtol=0)
    pixels, _ = generator.pixels(noised, latents[:1].expand(4, -1, -1, -1).contiguous())
    change = [np.abs(pixels[i].astype(int) - pixels[0].astype(int)).mean() for i in range(4)]
    assert change[0] == 0 < change[1] < change[3]


@pytest.mark.parametrize(
    "solver",
    ["dpmsolver++", pytest.param("ddim", marks=pytest.mark.slow), pytest.param("unipc", marks=pytest.mark.slow)],
)
def test_other_solvers_keep_all_channels(folder, inputs, solver):
    images, noise, latents = inputs
    ours = generator_of(folder[0], solver=solver)
    pixels, finite = ours.pixels(ours.perturb(ours.condition(images), LEVELS, noise), latents)
    assert finite.all()
    assert pixels.shape == (4, 32, 32, 3)


@pytest.mark.slow
def test_a_compiled_generator_gives_the_same_pictures_to_one_grey_level(folder, generator, inputs):
    if shutil.which("g++") is None and shutil.which("c++") is None:
        pytest.skip("torch.compile needs a C++ compiler on a CPU")
    images, noise, latents = inputs
    conditioning = generator.perturb(generator.condition(images), LEVELS, noise)
    compiled, _ = generator_of(folder[0], compiled=True).pixels(conditioning, latents)
    difference = np.abs(compiled.astype(int) - generator.pixels(conditioning, latents)[0])
    assert difference.max() <= 1
    assert difference.mean() < 0.01


def test_step_noise_is_a_function_of_the_rows_latents(inputs):
    _, _, latents = inputs
    one = [torch.rand(3, generator=g) for g in step_noise(latents)]
    other = [torch.rand(3, generator=g) for g in step_noise(latents.flip(0))]
    torch.testing.assert_close(torch.stack(one).flip(0), torch.stack(other), atol=0, rtol=0)
    assert len({tuple(x.tolist()) for x in one}) == 4


def test_half_precision_has_a_copy_in_fp32(folder):
    ours = generator_of(folder[0], precision="bf16", make_fp32=lambda: generator_of(folder[0]))
    copy = ours.in_fp32()
    assert copy is ours.in_fp32()
    assert copy.in_fp32() is None
    assert (ours.unet.dtype, copy.unet.dtype) == (torch.bfloat16, torch.float32)
    assert (ours.precision, copy.precision) == ("bf16", "fp32")


def test_sizes_and_levels_that_cannot_be_are_named(folder, generator, inputs):
    with pytest.raises(ConfigError, match="render_px is 66; generator kandinsky needs a multiple of 8"):
        generator_of(folder[0], sampling={"render_px": 66})
    with pytest.raises(ConfigError, match=r"noise levels must lie in 0 \.\.\. 999"):
        generator.perturb(torch.zeros(1, WIDTH), torch.tensor([1000]), torch.zeros(1, WIDTH))


def test_another_encoder_for_the_foreground_is_refused():
    config = GenerateConfig(encoder="estimator")
    with pytest.raises(ConfigError, match="noises embeddings by the statistics of its own encoder"):
        Kandinsky.inputs(config, None)


def broken(folder, tmp_path, change):
    path = shutil.copytree(folder[0], tmp_path / "broken")
    change(path)
    return path


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: (p / "model_index.json").unlink(), "no complete Kandinsky 2.2 folder"),
        (lambda p: write_json(p / "model_index.json", _class_name="FluxPipeline"), "holds a FluxPipeline, not a Kand"),
        (lambda p: (p / "movq" / "diffusion_pytorch_model.safetensors").unlink(), "holds no diffusion_pytorch_model"),
        (lambda p: shutil.rmtree(p / "image_encoder"), "image_encoder.config.json: missing"),
        (lambda p: write_json(p / "image_encoder" / "config.json", projection_dim=16), "parts of different pipelines"),
        (lambda p: write_json(p / "unet" / "config.json", addition_embed_type="text"), "takes no image embedding"),
    ],
)
def test_a_wrong_folder_is_one_line(folder, tmp_path, change, message):
    with pytest.raises(DataError, match=message) as found:
        KandinskyFolder(broken(folder, tmp_path, change))
    assert "\n" not in str(found.value)


def test_pickled_weights_are_refused(folder, tmp_path):
    def pickled(path):
        part = path / "unet" / "diffusion_pytorch_model.safetensors"
        part.rename(part.with_suffix(".bin"))

    with pytest.raises(DataError, match="weights as a pickle, which may run code"):
        KandinskyFolder(broken(folder, tmp_path, pickled))


def test_the_digests_name_every_file_that_is_read(folder):
    digests = KandinskyFolder(folder[0]).digests()
    assert {
        "weights/unet/diffusion_pytorch_model.safetensors",
        "weights/movq/diffusion_pytorch_model.safetensors",
        "weights/image_encoder/model.safetensors",
        "weights/image_processor/preprocessor_config.json",
        "weights/scheduler/scheduler_config.json",
        "weights/unet/config.json",
    } <= set(digests)
    assert all(len(digest) == 64 for digest in digests.values())

"""Generator `ip-adapter` against the stock pipeline, on a tiny folder with random weights."""

import shutil

import numpy as np
import pytest
import torch
from reference.genview_other_pipelines import WIDTH, ip_adapter_folder, kandinsky_folder, write_json
from reference.genview_worlds import CPU, discs_dataset
from safetensors.torch import load_file, save_file

from viewkit.pipelines.engine.run import run_stage
from viewkit.pipelines.foreground.stage import ForegroundStage
from viewkit.pipelines.generate.config import GenerateConfig
from viewkit.pipelines.generate.generators.ip_adapter import ENCODER, IpAdapter, IpAdapterFolder, add_adapter
from viewkit.pipelines.generate.generators.sampling import Guidance, Sampling
from viewkit.pipelines.generate.noising import NoiseSpace, squared_cosine
from viewkit.pipelines.generate.stage import GenerateStage
from viewkit.pipelines.weights.folder import load_part
from viewkit.shards.codecs import decode_image, decode_json
from viewkit.shards.errors import DataError

LEVELS = torch.tensor([0, 100, 200, 400])
STEPS = 2
ADAPTER = "models/ip-adapter_tiny.safetensors"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("adapter")
    return path, ip_adapter_folder(path)


def generator_of(path, guidance=7.5):
    torch.manual_seed(0)
    space = NoiseSpace(torch.randn(WIDTH) / 4, torch.rand(WIDTH) + 0.5, squared_cosine())
    sampling = Sampling(Guidance(guidance), steps=STEPS, output_px=32)
    networks = IpAdapter.load(IpAdapterFolder(path), WIDTH, "fp32", "checkpoint")
    return IpAdapter(networks, space, ENCODER.create(path, "cpu", "fp32"), sampling)


@pytest.fixture(scope="module")
def generator(folder):
    return generator_of(folder[0])


@pytest.fixture(scope="module")
def inputs(generator):
    rng = torch.Generator().manual_seed(1)
    images = list(np.random.default_rng(0).integers(0, 256, (4, 40, 50, 3), dtype=np.uint8))
    return images, torch.randn(4, WIDTH, generator=rng), torch.randn(4, *generator.latent_shape, generator=rng)


def test_a_batch_of_mixed_levels_equals_the_stock_pipeline_one_image_at_a_time(folder, generator, inputs):
    images, noise, latents = inputs
    conditioning = generator.perturb(generator.condition(images), LEVELS, noise)
    pixels, finite = generator.pixels(conditioning, latents)
    assert finite.all()
    for i in range(4):
        embedding = conditioning[i : i + 1, None]
        out = folder[1](
            prompt="",
            negative_prompt="",
            ip_adapter_image_embeds=[torch.cat([torch.zeros_like(embedding), embedding])],
            latents=latents[i : i + 1],
            num_inference_steps=STEPS,
            guidance_scale=7.5,
        )
        assert np.abs(pixels[i].astype(int) - np.asarray(out.images[0]).astype(int)).max() <= 1
    assert pixels.std() > 2


def test_permuting_a_batch_permutes_the_pixels_bit_for_bit(generator, inputs):
    images, noise, latents = inputs
    order = [2, 0, 3, 1]
    one = generator.pixels(generator.perturb(generator.condition(images), LEVELS, noise), latents)[0]
    shuffled = generator.condition([images[i] for i in order])
    other = generator.pixels(generator.perturb(shuffled, LEVELS[order], noise[order]), latents[order])[0]
    np.testing.assert_array_equal(one[order], other)


def test_a_rows_strength_changes_its_view(generator, inputs):
    images, noise, latents = inputs
    embedding = generator.condition([images[0]] * 4)
    noised = generator.perturb(embedding, torch.tensor([0, 0, 400, 999]), noise[:1].expand(4, -1))
    pixels, _ = generator.pixels(noised, latents[:1].expand(4, -1, -1, -1).contiguous())
    change = [np.abs(pixels[i].astype(int) - pixels[0].astype(int)).mean() for i in range(4)]
    assert change[0] == change[1] == 0 < change[2] < change[3]


def test_without_the_adapter_the_image_would_not_matter(generator, inputs):
    _, _, latents = inputs
    embedding = torch.randn(2, WIDTH, generator=torch.Generator().manual_seed(3))
    same = latents[:1].expand(2, -1, -1, -1)
    one = generator.predict(same, torch.tensor(500), embedding)
    assert (one[0] - one[1]).abs().max() > 1e-3


def broken(folder, tmp_path, change):
    path = shutil.copytree(folder[0], tmp_path / "broken")
    change(path)
    return path


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda p: write_json(p / "model_index.json", _class_name="FluxPipeline"),
            "holds a FluxPipeline, not a Stab",
        ),
        (lambda p: (p / ADAPTER).unlink(), r"models: holds no ip-adapter_sd15\.safetensors"),
        (lambda p: (p / ADAPTER).rename((p / ADAPTER).with_suffix(".bin")), "weights as a pickle"),
        (lambda p: shutil.copy(p / ADAPTER, p / "models" / "b.safetensors"), "holds 2 adapters"),
        (lambda p: write_json(p / "unet" / "config.json", in_channels=9), "takes 9 channels, 4 are needed"),
        (lambda p: shutil.rmtree(p / "models" / "image_encoder"), "image_encoder.config.json: missing"),
    ],
)
def test_a_wrong_folder_is_one_line(folder, tmp_path, change, message):
    with pytest.raises(DataError, match=message) as found:
        IpAdapterFolder(broken(folder, tmp_path, change))
    assert "\n" not in str(found.value)


def changed(change):
    def apply(path):
        tensors = load_file(path / ADAPTER)
        save_file({name: tensor.contiguous() for name, tensor in change(tensors).items()}, path / ADAPTER)

    return apply


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: {n: x for n, x in t.items() if "proj.weight" not in n}, "an adapter of another kind"),
        (lambda t: {**t, "image_proj.proj.weight": torch.zeros(64, WIDTH)}, "projects 32 numbers to 64, and its image"),
        (lambda t: {n: x for n, x in t.items() if n != "ip_adapter.1.to_k_ip.weight"}, "does not fit the unet"),
        (lambda t: {**t, "lora.weight": torch.zeros(1)}, "holds the tensor lora.weight, so it is no IP-Adapter"),
    ],
)
def test_an_adapter_of_another_network_is_one_line(folder, tmp_path, change, message):
    from diffusers import UNet2DConditionModel

    wrong = IpAdapterFolder(broken(folder, tmp_path, changed(change)))
    unet = load_part(UNet2DConditionModel, wrong, "unet", low_cpu_mem_usage=False)
    with pytest.raises(DataError, match=message) as found:
        add_adapter(unet, wrong, WIDTH)
    assert "\n" not in str(found.value)


def test_the_adapter_is_among_the_digests(folder):
    assert {f"weights/{ADAPTER}", "weights/models/image_encoder/model.safetensors"} <= set(
        IpAdapterFolder(folder[0]).digests()
    )


@pytest.mark.parametrize(("name", "make"), [("ip-adapter", ip_adapter_folder), ("kandinsky", kandinsky_folder)])
def test_the_stage_makes_views_with_it(tmp_path, name, make):
    dataset = discs_dataset(tmp_path / "dataset", images=12)
    make(tmp_path / "weights")
    config = GenerateConfig(generator=name, sample=12, steps=1, output_px=32, sign="+", strategy="random")
    run_stage(ForegroundStage(tmp_path / "weights", 4), config.foreground(), dataset, CPU)
    summary = run_stage(GenerateStage(tmp_path / "weights", 4), config, dataset, CPU)
    assert (summary.kept, summary.seen) == (12, 12)
    views = dataset.column("genview")
    facts = [decode_json(views.fields(i)["json"]) for i in range(12)]
    assert {each["generator"] for each in facts} == {name}
    assert len({each["level"] for each in facts}) > 1
    assert decode_image(views.fields(0)).shape == (32, 32, 3)
    assert "weights/unet/diffusion_pytorch_model.safetensors" in views.identity.inputs

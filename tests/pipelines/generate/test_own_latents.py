"""A generator of one's own above 64 px: the autoencoder it works in, trained here or given, and its latents."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from reference.genview_worlds import CPU, UntrainedConfig, UntrainedStage
from tiny_generator import colour_images

from viewkit.cli.main import run
from viewkit.pipelines.compare.cost import training_cost
from viewkit.pipelines.engine.contract import Run
from viewkit.pipelines.engine.run import plan_stage, run_stage
from viewkit.pipelines.foreground.stage import ForegroundStage
from viewkit.pipelines.generate.config import GenerateConfig
from viewkit.pipelines.generate.own.autoencoder import (
    create_autoencoder,
    encode,
    latent_shape,
    load_autoencoder,
    reconstruction_db,
)
from viewkit.pipelines.generate.own.autoencoding import AutoencoderTraining, Crops, batch_of
from viewkit.pipelines.generate.own.choose import choose_preset
from viewkit.pipelines.generate.own.config import PRESETS, GeneratorConfig, resolve
from viewkit.pipelines.generate.own.facts import GeneratorFacts
from viewkit.pipelines.generate.own.latents import with_latents, write_latents
from viewkit.pipelines.generate.own.network import OwnLatentFolder, create_unet
from viewkit.pipelines.generate.own.prepared import SCRATCH, Prepared, to_floats
from viewkit.pipelines.generate.own.stage import GeneratorStage, summary_lines
from viewkit.pipelines.generate.stage import GenerateStage
from viewkit.shards.codecs import decode_image
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ConfigError, DataError, RefusedError

SIDE = 16
SETTINGS = replace(resolve(GeneratorConfig(preset="pico-128"), "pico-128"), side_px=SIDE, autoencoder=(16, 16))
SMALL = GeneratorConfig(
    preset="pico-128", width=16, steps=4, autoencoder_steps=4, batch_size=8, held_out=8, sampling_steps=1
)


def prepared(images=12, held=2):
    rng = np.random.default_rng(1)
    pixels = rng.integers(0, 256, (images, SIDE, SIDE, 3), dtype=np.uint8)
    places = np.arange(images)
    embeddings = rng.normal(size=(images, 6)).astype(np.float32)
    return Prepared(pixels, embeddings, places[held:], places[:held], torch.zeros(6), torch.ones(6))


@pytest.fixture
def autoencoder():
    return create_autoencoder(SETTINGS).eval()


def test_latents_are_scaled_to_deviation_one_and_those_of_mirror_images_lie_beside_them(tmp_path, autoencoder):
    world, run_ = prepared(), Run(Dataset(tmp_path), tmp_path, "generator")
    (tmp_path / SCRATCH).mkdir()
    write_latents(run_, autoencoder, world, scaled=True)
    found = with_latents(run_, autoencoder, world)
    assert found.shape == latent_shape(autoencoder, SIDE) == (4, 8, 8)
    assert found.latents[world.train, 0].astype(np.float32).std() == pytest.approx(1, abs=0.05)
    images = to_floats(world.pixels)
    with torch.no_grad():
        for mirrored, shown in ((0, images), (1, images.flip(-1))):
            expected = autoencoder.encode(shown).latent_dist.mean * autoencoder.config.scaling_factor
            learnt = found.learnt(np.arange(12), np.full(12, bool(mirrored)))
            torch.testing.assert_close(learnt, expected, atol=4e-3, rtol=2e-3)
    assert not torch.equal(encode(autoencoder, images), encode(autoencoder, images.flip(-1)).flip(-1))


def test_latents_are_not_written_twice_and_keep_their_scaling_factor(tmp_path, autoencoder):
    world, run_ = prepared(), Run(Dataset(tmp_path), tmp_path, "generator")
    (tmp_path / SCRATCH).mkdir()
    write_latents(run_, autoencoder, world, scaled=True)
    factor, before = autoencoder.config.scaling_factor, (tmp_path / SCRATCH / "latents.npy").stat().st_mtime_ns
    again = create_autoencoder(SETTINGS)
    write_latents(run_, again, world, scaled=True)
    assert (tmp_path / SCRATCH / "latents.npy").stat().st_mtime_ns == before
    with_latents(run_, again, world)
    assert again.config.scaling_factor == factor != 1


def test_latents_of_another_autoencoder_are_made_anew(tmp_path, autoencoder):
    world, run_ = prepared(), Run(Dataset(tmp_path), tmp_path, "generator")
    (tmp_path / SCRATCH).mkdir()
    write_latents(run_, autoencoder, world, scaled=True)
    other = create_autoencoder(replace(SETTINGS, seed=1)).eval()
    write_latents(run_, other, world, scaled=False)
    found = with_latents(run_, other, world)
    expected = encode(other, to_floats(world.pixels))
    torch.testing.assert_close(found.learnt(np.arange(12), np.zeros(12, bool)), expected, atol=4e-3, rtol=2e-3)


@pytest.mark.parametrize(("processes", "images", "batch"), [(1, 100, 16), (3, 100, 18), (24, 100, 24), (4, 10, 8)])
def test_a_batch_of_crops_is_dealt_out_evenly(monkeypatch, processes, images, batch):
    monkeypatch.setattr("viewkit.pipelines.generate.own.autoencoding.world_size", lambda: processes)
    assert batch_of(images) == batch
    with pytest.raises(ConfigError, match="start fewer processes"):
        batch_of(0)


def test_few_images_get_a_batch_that_they_fill_and_a_given_one_is_refused_before_any_work(large):
    config = GeneratorStage().for_images(GeneratorConfig(), large, "cpu")
    assert (config.preset, config.batch_size) == ("pico-128", 32)  # 48 images, 4 held out
    given = replace(SMALL, batch_size=46)
    for act in (plan_stage, run_stage):
        with pytest.raises(ConfigError, match="batch_size is 46 and 44 images are trained on"):
            act(GeneratorStage(), given, large, CPU)
    assert not (large.path / "generator" / SCRATCH).exists()


def test_the_loss_of_an_autoencoder_is_the_error_of_the_crops_and_a_little_divergence(autoencoder):
    crops, noise = torch.rand(3, 3, SIDE, SIDE) * 2 - 1, torch.randn(3, 4, 8, 8)
    with torch.no_grad():
        found = AutoencoderTraining(autoencoder).loss((crops, noise))
        latents = autoencoder.encode(crops).latent_dist
        decoded = autoencoder.decode(latents.mean + latents.std * noise).sample
        divergence = 0.5 * (latents.mean**2 + latents.var - 1 - latents.logvar).sum(dim=(1, 2, 3))
    expected = (decoded - crops).abs().mean() + 1e-6 * divergence.mean()
    torch.testing.assert_close(found, expected)


def test_crops_are_the_same_from_any_step_and_lie_in_the_images(tmp_path, monkeypatch):
    monkeypatch.setattr("viewkit.pipelines.generate.own.autoencoding.CROP_PX", 8)
    world = prepared()
    source = Crops(
        prepared=world, run=Run(Dataset(tmp_path), tmp_path, "generator"), batch_size=5, streams=("a", "b"),
        latents=(4, 4, 4),
    )  # fmt: skip
    whole, rest = list(source.epoch(1)), list(source.epoch(1, start_step=1))
    assert len(whole) == 2 and torch.equal(whole[1].views[0], rest[0].views[0])
    assert torch.equal(whole[1].views[1], rest[0].views[1]) and whole[0].views[1].shape == (5, 4, 4, 4)
    every = to_floats(world.pixels).unfold(2, 8, 1).unfold(3, 8, 1)  # n 3 9 9 8 8
    patches = every[world.train].permute(0, 2, 3, 1, 4, 5).flatten(0, 2)
    patches = torch.cat([patches, patches.flip(-1)])
    for crop in whole[0].views[0]:
        assert (patches - crop).abs().amax(dim=(1, 2, 3)).min() < 1e-6


def test_the_reconstruction_is_measured_by_its_mean_squared_error(autoencoder):
    images = torch.rand(2, 3, SIDE, SIDE) * 2 - 1
    with torch.no_grad():
        decoded = autoencoder.decode(autoencoder.encode(images).latent_dist.mode()).sample.clamp(-1, 1)
    error = ((decoded - images) / 2).square().mean()  # pixels 0 ... 1
    assert reconstruction_db(autoencoder, images) == pytest.approx(float(-10 * torch.log10(error)), abs=1e-3)


def test_a_given_autoencoder_is_loaded_as_it_is_and_another_kind_is_refused(tmp_path, autoencoder):
    autoencoder.register_to_config(scaling_factor=0.5)
    autoencoder.save_pretrained(tmp_path / "vae", safe_serialization=True)
    found = load_autoencoder(tmp_path / "vae")
    assert found.config.scaling_factor == 0.5 and not any(each.requires_grad for each in found.parameters())
    for name, value in autoencoder.state_dict().items():
        assert torch.equal(found.state_dict()[name], value)
    config = tmp_path / "vae" / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "shift_factor": 0.1}))
    with pytest.raises(ConfigError, match="takes an AutoencoderKL whose latents have no shift"):
        load_autoencoder(tmp_path / "vae")
    with pytest.raises(DataError, match="there is no such folder"):
        load_autoencoder(tmp_path / "nowhere")


def test_sides_that_do_not_divide_are_refused(autoencoder):
    with pytest.raises(ConfigError, match="2 px a latent, and views are of 15 px"):
        latent_shape(autoencoder, 15)
    with pytest.raises(ConfigError, match="works in 6 x 6 latents here, and its network needs a multiple of 4"):
        create_unet(SETTINGS, 6, (4, 6, 6))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            ["--preset", "pico-32", "--autoencoder-steps", "5"],
            "is 5 and preset pico-32 works in pixels",
        ),
        (["--preset", "pico-64", "--autoencoder", "vae"], "--autoencoder is given, and preset pico-64 works in pixels"),
        (["--preset", "pico-128", "--autoencoder", "vae", "--autoencoder-steps", "5"], "leave one out"),
    ],
)
def test_options_of_an_autoencoder_that_cannot_be_are_refused(tmp_path, capsys, options, says):
    assert run(["generator", str(tmp_path), *options]) == 2
    assert says in capsys.readouterr().err


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """48 images of 128 px with an untrained estimator."""
    torch.set_num_threads(1)
    dataset = colour_images(tmp_path_factory.mktemp("latents") / "data", 48, side_px=128)
    run_stage(UntrainedStage(), UntrainedConfig(), dataset, CPU)
    return dataset


def test_the_preset_of_larger_images_works_in_latents(large):
    assert choose_preset(large.column("images"), "cpu")[0] == "pico-128"


@pytest.mark.slow
def test_from_large_images_to_views_of_their_side(large):
    assert plan_stage(GeneratorStage(), SMALL, large, CPU)["estimated_s"] > 0
    run_stage(GeneratorStage(), SMALL, large, CPU)
    artifact = large.artifact("generator")
    facts = GeneratorFacts.read(artifact)
    assert facts.side_px == 128 and facts.numbers["latents"] == [4, 32, 32]
    assert facts.numbers["reconstruction_db"] > 8
    flops, batch = (artifact.numbers[f"autoencoder_{name}"] for name in ("flops", "batch"))
    assert 0 < batch <= 16 and flops > 1e9 and "generator's autoencoder" not in training_cost(artifact).uncounted
    assert any(line.startswith("autoencoder: ") for line in summary_lines(large))
    folder = OwnLatentFolder(artifact.folder)
    assert folder.settings("unet")["in_channels"] == 4 and folder.settings("unet")["sample_size"] == 32
    assert (artifact.folder / "autoencoder.jsonl").is_file() and not (artifact.folder / "checkpoint").exists()
    config = GenerateConfig(generator="own", steps=2, sample=40, sign="+")
    run_stage(ForegroundStage(batch_size=8), config.foreground(), large, CPU)
    run_stage(GenerateStage(batch_size=8, only=None), config, large, CPU)
    column = large.column("genview")
    assert column.num_rows == 48
    assert decode_image(column.fields(0)).shape == (128, 128, 3)


@pytest.fixture
def at_32_px(monkeypatch):
    """The preset with views of 32 px, for what does not depend on the side."""
    monkeypatch.setitem(PRESETS, "pico-128", replace(PRESETS["pico-128"], side_px=32, autoencoder=(8, 8, 8)))


@pytest.mark.slow
@pytest.mark.usefixtures("at_32_px")
def test_a_given_autoencoder_is_part_of_the_identity_and_of_the_folder(large, tmp_path):
    dataset = Dataset(shutil.copytree(large.path, tmp_path / "data"))
    shutil.rmtree(dataset.path / "generator", ignore_errors=True)
    given = create_autoencoder(replace(SETTINGS, autoencoder=(8, 8)))
    given.register_to_config(scaling_factor=0.7)
    given.save_pretrained(tmp_path / "vae", safe_serialization=True)
    config = replace(SMALL, autoencoder_steps=None)
    run_stage(GeneratorStage(tmp_path / "vae"), config, dataset, CPU)
    artifact = dataset.artifact("generator")
    assert GeneratorFacts.read(artifact).numbers["latents"] == [4, 16, 16]
    assert not (artifact.folder / "autoencoder.jsonl").exists() and training_cost(artifact).uncounted == ()
    kept = OwnLatentFolder(artifact.folder)
    assert kept.settings("vae")["scaling_factor"] == 0.7
    with pytest.raises(RefusedError):
        run_stage(GeneratorStage(), config, dataset, CPU)


@pytest.mark.slow
@pytest.mark.usefixtures("at_32_px")
def test_a_training_interrupted_after_the_autoencoder_goes_on_with_the_same_one(large, tmp_path, monkeypatch):
    whole, interrupted = (Dataset(shutil.copytree(large.path, tmp_path / name)) for name in ("whole", "interrupted"))
    config = replace(SMALL, steps=3, autoencoder_steps=3)
    for dataset in (whole, interrupted):
        shutil.rmtree(dataset.path / "generator", ignore_errors=True)
    run_stage(GeneratorStage(), config, whole, CPU)
    with monkeypatch.context() as patch:
        patch.setattr("viewkit.pipelines.generate.own.stage.with_latents", _interrupted)
        with pytest.raises(KeyboardInterrupt):
            run_stage(GeneratorStage(), config, interrupted, CPU)
    taken = []
    loss = AutoencoderTraining.loss
    monkeypatch.setattr(AutoencoderTraining, "loss", lambda self, *given: taken.append(1) or loss(self, *given))
    run_stage(GeneratorStage(), config, interrupted, CPU)
    assert taken == [1]  # the step whose operations are counted
    for part in ("vae", "unet"):
        file = f"generator/{part}/diffusion_pytorch_model.safetensors"
        assert (whole.path / file).read_bytes() == (interrupted.path / file).read_bytes()


def _interrupted(*given):
    raise KeyboardInterrupt

"""What a generator of one's own learns from, and how it is trained: noise, average, resume, several processes."""

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tiny_generator
import torch
from tiny_generator import TINY, plain_colours

from viewkit.pipelines.engine.contract import Run
from viewkit.pipelines.generate.noising import NoiseSpace, squared_cosine, with_level_code
from viewkit.pipelines.generate.own.autoencoder import create_autoencoder, latent_shape
from viewkit.pipelines.generate.own.config import PRESETS, GeneratorConfig, resolve
from viewkit.pipelines.generate.own.denoiser import Denoiser
from viewkit.pipelines.generate.own.network import create_unet
from viewkit.pipelines.generate.own.prepared import Prepared, to_floats
from viewkit.pipelines.generate.own.source import NoisedImages, Noiser, sample_draws
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ConfigError

WIDTH, SIDE = 6, 8


def prepared(images=20, held=4):
    rng = np.random.default_rng(1)
    pixels = rng.integers(0, 256, (images, SIDE, SIDE, 3), dtype=np.uint8)
    embeddings = rng.normal(size=(images, WIDTH)).astype(np.float32)
    places = np.arange(images)
    return Prepared(pixels, embeddings, places[held:], places[:held], torch.zeros(WIDTH), torch.ones(WIDTH))


def noised(rows=12, **changes):
    """Images, draws and the batch that is made of them."""
    world = prepared()
    draws = sample_draws(np.random.default_rng(2), rows, WIDTH, world.shape)._replace(**changes)
    images = to_floats(world.pixels[:rows])
    batch = Noiser(NoiseSpace(world.mean, world.std, squared_cosine())).batch(
        world.learnt(np.arange(rows), draws.flipped), torch.from_numpy(world.embeddings[:rows]), draws
    )
    return world, draws, images, batch


def test_image_and_noise_come_back_from_noised_image_and_velocity():
    """x0 = sqrt(abar) x - sqrt(1 - abar) v and eps = sqrt(1 - abar) x + sqrt(abar) v (Salimans & Ho 2022)."""
    _, draws, images, batch = noised(flipped=np.arange(12) % 2 == 0)
    abar = squared_cosine()[torch.from_numpy(draws.time)][:, None, None, None]
    x, v = batch.views
    mirrored = torch.from_numpy(draws.flipped)[:, None, None, None]
    torch.testing.assert_close(
        abar.sqrt() * x - (1 - abar).sqrt() * v, torch.where(mirrored, images.flip(-1), images), atol=1e-5, rtol=0
    )
    torch.testing.assert_close(
        (1 - abar).sqrt() * x + abar.sqrt() * v, torch.from_numpy(draws.noise), atol=1e-5, rtol=0
    )


def test_the_condition_is_the_noised_embedding_with_its_levels_code_or_zeros():
    world, draws, _, batch = noised(dropped=np.arange(12) < 3)
    time, condition = batch.targets[0]
    level = torch.from_numpy(draws.level)
    abar = squared_cosine()[level][:, None]
    embedding, noise = torch.from_numpy(world.embeddings[:12]), torch.from_numpy(draws.embedding_noise)
    z = abar.sqrt() * embedding + (1 - abar).sqrt() * noise
    assert (condition[:3] == 0).all() and time.tolist() == draws.time.tolist()
    torch.testing.assert_close(condition[3:], with_level_code(z, level)[3:])
    assert condition.shape == (12, 2 * WIDTH)


def test_draws_are_uniform_over_levels_and_times_and_drop_a_tenth():
    draws = sample_draws(np.random.default_rng(0), 20_000, 1, (1, 1, 1))
    for values in (draws.level, draws.time):
        assert (values.min(), values.max()) == (0, 999)
        assert values.mean() == pytest.approx(499.5, abs=4 * 289 / 20_000**0.5)
    assert draws.dropped.mean() == pytest.approx(0.1, abs=0.01) and draws.flipped.mean() == pytest.approx(0.5, abs=0.02)


def test_an_epoch_is_the_same_from_any_step_and_takes_every_trained_image_once(tmp_path):
    run = Run(Dataset(tmp_path), tmp_path, "generator", seed=3)
    source = NoisedImages(prepared(), run, 4)
    assert source.steps_per_epoch == 4
    whole, rest = list(source.epoch(1)), list(source.epoch(1, start_step=2))
    for one, other in zip(whole[2:], rest, strict=True):
        assert torch.equal(one.views[0], other.views[0]) and torch.equal(one.targets[0][1], other.targets[0][1])
    assert not torch.equal(whole[0].views[0], next(source.epoch(0)).views[0])
    order = run.generator("order", 1).permutation(source.prepared.train)
    assert sorted(order.tolist()) == list(range(4, 20))


def test_the_kept_weights_are_diffusers_moving_average():
    from diffusers.training_utils import EMAModel

    denoiser = Denoiser(torch.nn.Linear(3, 2))
    theirs = EMAModel(denoiser.unet.parameters(), decay=0.999, use_ema_warmup=True, power=0.75)
    for step in range(1, 6):
        with torch.no_grad():
            for parameter in denoiser.unet.parameters():
                parameter.add_(step)
        denoiser.step = step
        denoiser.after_step()
        theirs.step(denoiser.unet.parameters())
    for ours, expected in zip(denoiser.average.parameters(), theirs.shadow_params, strict=True):
        torch.testing.assert_close(ours, expected)
    assert [id(parameter) for group in denoiser.groups(0.0) for parameter in group["params"]] == [
        id(denoiser.unet.weight), id(denoiser.unet.bias),
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_makes_a_network_that_a_condition_reaches(name):
    """Also a condition that is the same all over the image: group norms leave its mean colour alone."""
    settings = resolve(GeneratorConfig(preset=name, width=16), name)
    shape = (3, settings.side_px, settings.side_px)
    if settings.autoencoder:
        shape = latent_shape(create_autoencoder(settings), settings.side_px)
        assert shape == (4, 32, 32)
    unet = create_unet(settings, WIDTH, shape)
    x = torch.zeros(2, *shape)
    condition = torch.randn(2, 2 * WIDTH, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        out = unet(x, torch.tensor(999), None, class_labels=condition, return_dict=False)[0]
    assert out.shape == x.shape
    assert (out[0].mean(dim=(1, 2)) - out[1].mean(dim=(1, 2))).abs().max() > 1e-3
    assert PRESETS[name].channels == resolve(GeneratorConfig(preset=name), name).channels


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"judge": "estimator"}, "judge is 'estimator', whose embeddings condition the generator"),
        ({"judge": "unclip"}, "judge is 'unclip', which lies in a folder of weights"),
        ({"judge": "nobody"}, "encoder is 'nobody'"),
        ({"width": 24}, "width is 24; it must be a multiple of 16"),
        ({"guidance": 0.5}, "guidance is 0.5"),
        ({"views": 1}, "views is 1; it must lie in 2"),
        ({"held_out": 2}, "held_out is 2"),
        ({"steps": 0}, "steps is 0"),
        ({"lr": 0.0}, "lr is 0.0"),
    ],
)
def test_impossible_options_are_refused_before_any_work(options, says):
    with pytest.raises(ConfigError, match=says):
        GeneratorConfig(**options)


def weights(dataset):
    return (dataset / "generator" / "unet" / "diffusion_pytorch_model.safetensors").read_bytes()


@pytest.mark.slow
def test_a_killed_training_ends_with_the_weights_of_an_undisturbed_one(tmp_path):
    plain_colours(tmp_path / "killed", 120)
    shutil.copytree(tmp_path / "killed", tmp_path / "whole")
    here = Path(tiny_generator.__file__)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (here.parent, here.parents[1])))}
    for command in (["killed"], ["whole", "whole"]):
        subprocess.run(
            [sys.executable, str(here), str(tmp_path / command[0]), *command[1:]], check=True, env=environment
        )
    assert weights(tmp_path / "killed") == weights(tmp_path / "whole")
    ours, theirs = (tmp_path / name / "generator" for name in ("killed", "whole"))
    assert (ours / "generator.json").read_bytes() == (theirs / "generator.json").read_bytes()
    assert not (ours / "checkpoint").exists() and not (ours / "prepared").exists()


@pytest.mark.slow
def test_two_processes_train_what_one_trains(tmp_path):
    plain_colours(tmp_path / "one", 120)
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    options = [word for name, value in vars(replace(TINY, steps=3)).items() if value not in (None, False)
               for word in (f"--{name.replace('_', '-')}", str(value))]  # fmt: skip
    viewkit = [sys.executable, "-m", "viewkit.cli"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--no-python"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    for name, before in (("one", []), ("two", torchrun)):
        command = [*before, *viewkit, "generator", str(tmp_path / name), "--device", "cpu", *options]
        subprocess.run(command, check=True, env=environment)
    from safetensors.torch import load

    one, two = (load(weights(tmp_path / name)) for name in ("one", "two"))
    for name in one:
        torch.testing.assert_close(one[name], two[name], atol=2e-4, rtol=1e-3)

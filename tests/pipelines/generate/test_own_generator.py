"""A generator of one's own, from its training to generated views: laws of level and guidance, bytes, refusals."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from reference.genview_worlds import CPU
from tiny_generator import TINY, colour_images, plain_colours

from viewkit.pipelines.encoders.open import open_encoder
from viewkit.pipelines.engine.contract import Run, Silent
from viewkit.pipelines.engine.execution import Execution
from viewkit.pipelines.engine.run import plan_stage, run_stage
from viewkit.pipelines.foreground.artifact import Foreground
from viewkit.pipelines.foreground.stage import ForegroundStage
from viewkit.pipelines.generate.config import GenerateConfig
from viewkit.pipelines.generate.fidelity_config import FidelityConfig
from viewkit.pipelines.generate.fidelity_stage import FidelityStage
from viewkit.pipelines.generate.fidelity_stage import summary_lines as fidelity_lines
from viewkit.pipelines.generate.generators.interface import Setup
from viewkit.pipelines.generate.generators.own import Own
from viewkit.pipelines.generate.generators.sampling import Sampling
from viewkit.pipelines.generate.levels import MEASURED
from viewkit.pipelines.generate.own.choose import choose_preset
from viewkit.pipelines.generate.own.config import GeneratorConfig
from viewkit.pipelines.generate.own.facts import GeneratorFacts
from viewkit.pipelines.generate.own.stage import GeneratorStage, summary_lines
from viewkit.pipelines.generate.stage import GenerateStage
from viewkit.pipelines.report.config import ReportConfig
from viewkit.pipelines.report.stage import ReportStage
from viewkit.pipelines.training.metrics import read_metrics
from viewkit.shards.codecs import decode_image, decode_json
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ConfigError, DataError, RefusedError, ViewkitError

FOREGROUND = {"sample": 40, "sign": "+"}
SMALL = {**FOREGROUND, "generator": "own", "steps": 2}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A dataset with a generator that has taken ten steps, and its foreground."""
    torch.set_num_threads(1)
    dataset = plain_colours(tmp_path_factory.mktemp("own") / "data", 120)
    run_stage(GeneratorStage(), TINY, dataset, CPU)
    run_stage(ForegroundStage(batch_size=8), GenerateConfig(**SMALL).foreground(), dataset, CPU)
    return dataset


def copied(dataset, path):
    return Dataset(shutil.copytree(dataset.path, path))


def said_by(stage, config, dataset):
    said, progress = [], Silent()
    progress.message = said.append
    run_stage(stage, config, dataset, CPU, progress)
    return said


@pytest.mark.slow
def test_a_level_costs_fidelity_and_gives_diversity(tmp_path):
    """After 1,280 images of a training: a level means what it should, by more than the errors."""
    torch.set_num_threads(1)
    dataset = plain_colours(tmp_path / "data", 300)
    config = replace(TINY, steps=80, batch_size=16, lr=4e-3, held_out=16, sampling_steps=4)
    said = said_by(GeneratorStage(), config, dataset)
    table = GeneratorFacts.read(dataset.artifact("generator")).table
    assert [row["level"] for row in table] == list(MEASURED) and all(row["images"] == 16 for row in table)
    low, high = table[0], table[-1]
    assert low["cosine"] - high["cosine"] > 2 * np.hypot(low["cosine_error"], high["cosine_error"])
    assert high["diversity"] - low["diversity"] > 2 * np.hypot(low["diversity_error"], high["diversity_error"])
    assert low["cosine"] > low["chance"] + 0.1 and abs(high["cosine"] - high["chance"]) < 0.3
    assert low["colour"] < high["colour"] and not [line for line in said if "should" in line]
    losses = [line["held_out_loss"] for line in read_metrics(dataset.path / "generator" / "metrics.jsonl")
              if "held_out_loss" in line]  # fmt: skip
    assert losses[-1] < 0.7 * losses[0]


@pytest.mark.slow
def test_the_artifact_holds_its_files_and_the_summary_its_table(trained):
    artifact = trained.artifact("generator")
    parts = {"unet", "image_normalizer", "scheduler", "image_noising_scheduler"}
    assert {name.split("/")[0] for name in artifact.files if "/" in name} == parts | {"samples"}
    of_latents = {name for name in GeneratorStage.holds if name.startswith(("vae/", "autoencoder"))}
    assert set(GeneratorStage.holds) - of_latents <= set(artifact.files) and len(of_latents) == 3
    facts = GeneratorFacts.read(artifact)
    assert facts.levels == sorted(facts.levels) and len(facts.levels) == 5
    assert (artifact.numbers["images"], artifact.numbers["held_out"]) == (110, 10)
    assert artifact.numbers["step_flops"] > 0
    lines = summary_lines(trained)
    assert [int(line.split()[0]) for line in lines[1:7]] == list(MEASURED)
    assert any(line.startswith("10 held-out images, judged by colour") for line in lines)
    assert f"calibrated levels: {', '.join(map(str, facts.levels))}" in lines[-1]
    sheet = decode_image({"png": artifact.path("samples.png").read_bytes()})
    assert sheet.shape == (8 * 34 - 2, 7 * 34 - 2, 3)


@pytest.mark.slow
def test_another_start_finds_the_work_done_and_another_setting_is_refused(trained):
    assert run_stage(GeneratorStage(), TINY, trained, CPU).written == 0
    with pytest.raises(RefusedError, match="steps"):
        run_stage(GeneratorStage(), replace(TINY, steps=11), trained, CPU)
    assert plan_stage(GeneratorStage(), TINY, trained, CPU)["done"]


@pytest.mark.slow
def test_a_plan_times_steps_and_writes_nothing(trained, tmp_path):
    dataset = copied(trained, tmp_path / "data")
    shutil.rmtree(dataset.path / "generator")
    plan = plan_stage(GeneratorStage(), TINY, dataset, CPU)
    assert (plan["rows"], plan["steps"]) == (120, 10) and plan["step_s"] > 0
    assert not (dataset.path / "generator").exists()


def own_of(dataset, **options):
    config = GenerateConfig(**{**SMALL, **options})
    run = Run(dataset, dataset.path / "genview", "generate")
    encoder = open_encoder("estimator", dataset)
    foreground = Foreground.read(dataset.artifact("foreground"))
    return Own.create(Setup(replace(config, output_px=32), run, encoder, foreground))


def conditioned(own, rows=3):
    rng = torch.Generator().manual_seed(0)
    embedding, noise = torch.randn(rows, own.encoder.width, generator=rng), torch.randn(rows, own.encoder.width)
    latents = torch.randn(rows, *own.latent_shape, generator=rng)
    return own.perturb(embedding, torch.tensor([0, 400, 999])[:rows], noise), latents


@pytest.mark.slow
@pytest.mark.parametrize("guidance", [1.0, 3.0])
def test_a_batch_of_mixed_levels_equals_a_plain_loop_over_the_folders_parts(trained, guidance):
    from diffusers import DPMSolverMultistepScheduler, UNet2DConditionModel

    own = own_of(trained, guidance=guidance, steps=3)
    condition, latents = conditioned(own)
    pixels, finite = own.pixels(condition, latents)
    folder = trained.path / "generator"
    unet = UNet2DConditionModel.from_pretrained(folder / "unet").eval()
    for row in range(3):
        solver = DPMSolverMultistepScheduler.from_pretrained(folder / "scheduler")
        solver.set_timesteps(3)
        x = latents[row : row + 1] * solver.init_noise_sigma
        with torch.inference_mode():
            for time in solver.timesteps:
                with_, without = (
                    unet(x, time, None, class_labels=labels, return_dict=False)[0]
                    for labels in (condition[row : row + 1], torch.zeros_like(condition[:1]))
                )
                x = solver.step(without + guidance * (with_ - without), time, x, return_dict=False)[0]
        theirs = ((x / 2 + 0.5).clamp(0, 1) * 255).round()[0].permute(1, 2, 0).numpy()
        assert np.abs(pixels[row].astype(int) - theirs).max() <= 1
    assert finite.all()


@pytest.mark.slow
def test_sampling_conditions_on_what_the_training_conditioned_on(trained):
    own = own_of(trained)
    facts = own.space
    embedding = facts.mean[None].repeat(2, 1)  # the mean embedding: standardised it is zero
    condition = own.perturb(embedding, torch.tensor([0, 500]), torch.zeros(2, own.encoder.width))
    width = own.encoder.width
    torch.testing.assert_close(condition[:, :width], torch.zeros(2, width), atol=1e-5, rtol=0)
    assert condition.shape == (2, 2 * width) and not torch.equal(condition[0, width:], condition[1, width:])
    assert own.latent_shape == (3, 32, 32)


@pytest.mark.slow
def test_one_worker_and_two_write_the_same_bytes(trained, tmp_path):
    config, columns = GenerateConfig(**SMALL, subset=48), []
    for workers in (1, 2):
        dataset = copied(trained, tmp_path / str(workers))
        execution = Execution(device="cpu", workers=workers, max_rejects=1.0)
        run_stage(GenerateStage(batch_size=8), config, dataset, execution)
        columns.append({path.name: path.read_bytes() for path in sorted((dataset.path / "genview").glob("*.tar"))})
    assert columns[0] == columns[1] and len(columns[0]) == 4


@pytest.mark.slow
def test_the_five_steps_are_the_calibrated_ones_and_spread_levels_are_measured(trained, tmp_path):
    dataset = copied(trained, tmp_path / "data")
    steps = GeneratorFacts.read(dataset.artifact("generator")).levels
    levels = {}
    for strategy in ("calibrated", "adaptive", "spread"):
        config = GenerateConfig(**SMALL, strategy=strategy, subset=40, views_per_image=2)
        run_stage(GenerateStage(batch_size=8, column=f"genview_{strategy}"), config, dataset, CPU)
        column = dataset.column(f"genview_{strategy}")
        levels[strategy] = {
            key: decode_json(column.fields(column.place_of[key])["json"])["level"]
            for key in column.keys()  # noqa: SIM118
        }
    assert levels["calibrated"] == {key: steps[level // 100] for key, level in levels["adaptive"].items()}
    assert set(levels["spread"].values()) <= set(MEASURED) and len(set(levels["spread"].values())) > 3
    found = run_stage(FidelityStage(column="genview_spread"), FidelityConfig(), dataset, CPU).numbers
    assert [row["level"] for row in found["table"]] == sorted(set(levels["spread"].values()))
    assert all(row["diversity"] > 0 for row in found["table"])
    lines = fidelity_lines(dataset)
    assert "own spread, by level:" in lines
    assert found["independent"] and found["made_with"] == "estimator"


def test_a_speed_is_another_word_for_its_steps():
    fast = GenerateConfig(generator="own", speed="fast")
    same = GenerateConfig(generator="own", steps=10, guidance_start=0.2, guidance_stop=0.8)
    assert GenerateStage().settings(fast) == GenerateStage().settings(same) and "speed" not in GenerateStage().settings(
        same
    )
    assert Sampling.of(fast) == Sampling.of(same)
    assert GenerateStage().settings(GenerateConfig(generator="own", speed="exact")) == GenerateStage().settings(
        GenerateConfig(generator="own")
    )
    with pytest.raises(ConfigError, match="speed is 'fast', for generator own, and generator is retrieval"):
        GenerateConfig(speed="fast")
    with pytest.raises(ConfigError, match="speed is 'fast' and steps is 30, which it decides; leave one out"):
        GenerateConfig(generator="own", speed="fast", steps=30)


@pytest.mark.slow
@pytest.mark.parametrize(("speed", "passes"), [("exact", 40), ("fast", 16), ("fastest", 8)])
def test_a_speed_costs_as_many_passes_as_it_says(trained, speed, passes):
    own, seen = own_of(trained, speed=speed, steps=GenerateConfig.steps, guidance=2.0), []
    own.unet.register_forward_pre_hook(lambda module, inputs: seen.append(len(inputs[0])))
    own.pixels(*conditioned(own))
    assert sum(seen) == 3 * passes


@pytest.mark.slow
def test_the_page_shows_the_generator(trained, tmp_path):
    dataset = copied(trained, tmp_path / "data")
    run_stage(ReportStage(), ReportConfig(), dataset, CPU)
    page = (dataset.path / "report" / "index.html").read_text()
    assert "The generator of these images, on 10 that it was not trained on, judged by colour" in page


@pytest.mark.slow
def test_a_chain_with_a_generator_is_rehearsed(tmp_path):
    file = tmp_path / "own.toml"
    file.write_text(
        'title = "own"\n[pack]\n[estimator]\n[generator]\npreset = "small-64"\nlr = 0.001\n'
        '[generate]\ngenerator = "own"\nstrategy = "calibrated"\nguidance = 3.0\n'
    )
    command = [sys.executable, "-m", "viewkit.cli", "run", str(file), "demo:train", str(tmp_path / "out"), "--rehearse"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.slow
def test_calibrated_levels_serve_retrieval_and_one_fit_serves_both(trained, tmp_path):
    dataset = copied(trained, tmp_path / "data")
    config = GenerateConfig(**FOREGROUND, strategy="calibrated", subset=16)
    assert config.foreground() == GenerateConfig(**SMALL).foreground()
    run_stage(GenerateStage(batch_size=8, column="genview_retrieval"), config, dataset, CPU)
    assert "generator" in dataset.column("genview_retrieval").identity.inputs
    with pytest.raises(ConfigError, match="calibrated levels are for embeddings of the estimator"):
        GenerateConfig(generator="unclip", strategy="calibrated")


@pytest.mark.slow
def test_no_generator_and_one_of_another_estimator_or_other_images_are_named(trained, tmp_path):
    config = GenerateConfig(**SMALL)
    without = copied(trained, tmp_path / "without")
    shutil.rmtree(without.path / "generator")
    with pytest.raises(ViewkitError, match="viewkit generator"):
        run_stage(GenerateStage(), config, without, CPU)
    other = plain_colours(tmp_path / "other", 110)
    run_stage(ForegroundStage(), config.foreground(), other, CPU)
    shutil.copytree(trained.path / "generator", other.path / "generator")
    with pytest.raises(ViewkitError, match=r"generator: it was made from another 'estimator'"):
        run_stage(GenerateStage(), config, other, CPU)
    facts = json.loads((trained.path / "generator" / "generator.json").read_text())
    own = own_of(trained)
    assert facts["encoder"] == dict(own.encoder.fingerprint())
    with pytest.raises(ConfigError, match="render_px is 64 and this generator makes views of 32 px"):
        own_of(trained, render_px=64)


def test_too_few_images_no_estimator_and_large_ones_are_named(tmp_path):
    few = plain_colours(tmp_path / "few", 12)
    with pytest.raises(DataError, match=r"has 12 images, and a generator of one's own takes 40 or more; pack more"):
        run_stage(GeneratorStage(), GeneratorConfig(), few, CPU)
    with pytest.raises(DataError, match="takes 40 or more"):
        run_stage(GeneratorStage(), TINY, few, CPU)
    assert not (few.path / "generator").exists()
    shutil.rmtree(few.path / "estimator")
    with pytest.raises(ViewkitError, match="viewkit estimator"):
        run_stage(GeneratorStage(), TINY, few, CPU)


def test_a_preset_fits_the_images_and_large_images_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("viewkit.pipelines.generate.own.choose.MIN_IMAGES", 3)
    small, middle, large = (colour_images(tmp_path / str(px), 3, px).column("images") for px in (32, 60, 400))
    assert choose_preset(small, "cpu")[0] == "pico-32"
    name, why = choose_preset(middle, "cuda:0")
    assert name == "pico-64" and why.startswith("preset pico-64 for 3 images of 60 px on a GPU")
    monkeypatch.setattr("viewkit.pipelines.generate.own.choose.MANY", 3)
    assert choose_preset(middle, "cuda:0")[0] == "small-64"
    with pytest.raises(DataError, match=r"the images are of 400 px, and it makes views of 32 or 64 or 128 or 256 px"):
        choose_preset(large, "cpu")

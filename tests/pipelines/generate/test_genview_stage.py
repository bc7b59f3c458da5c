"""The stages `foreground` and `generate`, run whole on a small dataset."""

import shutil
import threading
import time
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch
from reference.genview_pipeline import tiny_pipeline
from reference.genview_worlds import CPU, discs_dataset
from vs2fi_world import write_column

from viewkit.pipelines.encoders.open import open_encoder
from viewkit.pipelines.engine.contract import Silent
from viewkit.pipelines.engine.execution import Execution
from viewkit.pipelines.engine.run import plan_stage, run_stage
from viewkit.pipelines.engine.seeds import smallest
from viewkit.pipelines.foreground.artifact import Foreground
from viewkit.pipelines.foreground.config import ForegroundConfig
from viewkit.pipelines.foreground.stage import ForegroundStage
from viewkit.pipelines.generate.config import GenerateConfig
from viewkit.pipelines.generate.generators.interface import Failed
from viewkit.pipelines.generate.generators.retrieval import Retrieval
from viewkit.pipelines.generate.sides import natural_px
from viewkit.pipelines.generate.stage import GenerateStage
from viewkit.shards.codecs import decode_image, decode_json, encode_png, image_field
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ConfigError, DataError, RefusedError
from viewkit.shards.lock import artifact_lock
from viewkit.shards.row import Row

CONFIG = GenerateConfig(sample=30)
UNCLIP = GenerateConfig(generator="unclip", sample=30, steps=1, render_px=32, output_px=64, sign="+")


def generate(dataset, config=CONFIG, weights=None, execution=CPU, batch_size=8):
    run_stage(ForegroundStage(weights, batch_size), config.foreground(), dataset, CPU)
    return run_stage(GenerateStage(weights, batch_size), config, dataset, execution)


def rows_of(dataset, column="genview"):
    found = dataset.column(column)
    return {key: found.fields(i) for i, key in enumerate(found.keys())}


def facts_of(dataset):
    return {key: decode_json(fields["json"]) for key, fields in rows_of(dataset).items()}


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    """Images and estimator, nothing else; one of the images is broken."""
    return discs_dataset(tmp_path_factory.mktemp("discs"), broken="disc005")


@pytest.fixture(scope="module")
def made(packed, tmp_path_factory):
    path = shutil.copytree(packed.path, tmp_path_factory.mktemp("made") / "dataset")
    summary = generate(Dataset(path))
    return Dataset(path), summary


@pytest.fixture
def fresh(packed, tmp_path):
    return Dataset(shutil.copytree(packed.path, tmp_path / "dataset"))


@pytest.fixture
def fitted(made, tmp_path):
    """Images, estimator and the foreground of `CONFIG`, but no views yet."""
    path = shutil.copytree(made[0].path, tmp_path / "dataset", ignore=shutil.ignore_patterns("genview"))
    return Dataset(path)


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    path = tmp_path_factory.mktemp("weights")
    tiny_pipeline().save_pretrained(path)
    return path


def test_every_image_gets_a_view_or_a_reason(made):
    dataset, summary = made
    assert summary.seen == 40
    assert summary.kept == 39
    assert dict(summary.rejected) == {"undecodable": 1}
    assert set(facts_of(dataset)) == set(dataset.column("images").keys()) - {"disc005"}


def test_a_retrieved_view_is_another_image_unchanged(made):
    dataset, _ = made
    images = rows_of(dataset, "images")
    for key, fields in rows_of(dataset).items():
        facts = decode_json(fields["json"])
        assert facts["neighbour"] not in (key, "disc005")
        assert image_field(fields) == image_field(images[facts["neighbour"]])
        assert -1 <= facts["cosine"] <= 1


def test_facts_say_how_a_view_came_about(made):
    dataset, _ = made
    for facts in facts_of(dataset).values():
        count = facts["foreground_share"] * 64  # 8 x 8 tokens
        assert count == int(count)
        assert facts["level"] == 100 * min(4, 5 * int(count) // 64)
        assert {"seed": 0, "attempt": 0, "generator": "retrieval"}.items() <= facts.items()
    assert len({facts["level"] for facts in facts_of(dataset).values()}) > 1


def test_the_fit_says_what_it_found(made):
    dataset, _ = made
    numbers = dataset.artifact("foreground").numbers
    assert numbers["foreground_share"] == pytest.approx(0.4, abs=1 / 64)
    assert abs(numbers["t"]) > 5
    assert sum(numbers["images_per_level"].values()) == numbers["images"]
    assert numbers["undecodable"] == 1
    assert "masks.png" in dataset.artifact("foreground").files


def test_foreground_lies_on_the_discs(made):
    dataset, _ = made
    encoder = open_encoder("estimator", dataset)
    foreground = Foreground.read(dataset.artifact("foreground"))
    crops, scores = [], []
    for fields in list(rows_of(dataset, "images").values())[:5]:
        crop = encoder.preprocess.crop(decode_image(fields))
        tokens, _ = encoder.encode_images([crop])
        scores.append((tokens[0].double() @ foreground.direction).numpy())
        crops.append(crop.reshape(8, 4, 8, 4, 3).mean(axis=(1, 3, 4)).ravel())
    assert np.corrcoef(np.concatenate(scores), np.concatenate(crops))[0, 1] > 0.5


@pytest.mark.slow
@pytest.mark.parametrize("workers", [2, 3])
def test_any_number_of_workers_writes_the_same_bytes(made, fresh, workers):
    dataset, _ = made
    generate(fresh, execution=replace(CPU, workers=workers))
    assert contents(fresh.path / "genview") == contents(dataset.path / "genview")


def test_a_row_does_not_depend_on_its_neighbours(made, fitted):
    dataset, _ = made
    job = GenerateStage(batch_size=8).prepare(CONFIG, run_of(fitted))
    column = fitted.column("images")
    alone = list(job(iter([column.row(3), column.row(20)])))
    expected = rows_of(dataset)
    assert [row.fields for row in alone] == [expected[row.key] for row in alone]


def run_of(dataset):
    from viewkit.pipelines.engine.contract import Run

    return Run(dataset, dataset.path / "genview", "generate", 0)


def test_another_seed_gives_other_neighbours(made, fitted):
    dataset, _ = made
    config = replace(CONFIG, seed=1, strategy="constant", level=999)
    generate(fitted, config)
    ours, other = facts_of(fitted), facts_of(dataset)
    assert {facts["level"] for facts in ours.values()} == {999}
    assert sum(ours[key]["neighbour"] != other[key]["neighbour"] for key in ours) > 10


def test_more_noise_takes_the_neighbour_farther(fitted):
    images = fitted.column("images")
    encoder = open_encoder("estimator", fitted)
    index = np.load(fitted.path / "foreground" / "index.npy")
    foreground = Foreground.read(fitted.artifact("foreground"))
    generator = Retrieval(encoder, index, foreground.mean, foreground.std, images)
    keys = [key for key in list(images.keys()) if key != "disc005"]
    _, embedding = encoder.encode_images([decode_image(images.fields(images.place_of[key])) for key in keys])
    noise = torch.randn(embedding.shape, generator=torch.Generator().manual_seed(0))
    similarity = []
    for level in (0, 400, 999):
        conditioning = generator.perturb(embedding, torch.full((len(keys),), level), noise)
        found = generator.sample(conditioning, torch.zeros(len(keys), 0), keys)
        rows = [images.place_of[view.facts["neighbour"]] for view in found]
        own = [images.place_of[key] for key in keys]
        similarity.append((index[rows] * index[own]).sum(axis=1).mean())
    assert similarity[0] > similarity[1] > similarity[2]


def test_one_encoder_forward_serves_foreground_and_conditioning(fresh, weights, monkeypatch):
    from viewkit.pipelines.encoders.clip_folders import ClipFolderEncoder

    passes = []
    forward = ClipFolderEncoder.forward
    monkeypatch.setattr(ClipFolderEncoder, "forward", lambda self, x: passes.append(len(x)) or forward(self, x))
    run_stage(ForegroundStage(weights, 8), UNCLIP.foreground(), fresh, CPU)
    job = GenerateStage(weights, 8).prepare(UNCLIP, run_of(fresh))
    passes.clear()
    column = fresh.column("images")
    views = list(job(iter([column.row(i) for i in range(8, 16)])))
    assert len(views) == 8
    assert passes == [8]


def test_unclip_views_come_with_their_level_and_any_batch_mates(fresh, weights):
    summary = generate(fresh, UNCLIP, weights)
    assert summary.kept == 39
    for fields in rows_of(fresh).values():
        assert decode_image(fields).shape == (64, 64, 3)
        assert decode_json(fields["json"])["generator"] == "unclip"
    assert not (fresh.path / "foreground" / "index.npy").exists()
    inputs = fresh.column("genview").identity.inputs
    assert "weights/unet/diffusion_pytorch_model.safetensors" in inputs


def test_a_failed_draw_is_repeated_with_the_next_seed_and_then_rejected(fitted, monkeypatch):
    sample, seen = Retrieval.sample, []

    def unlucky(self, conditioning, latents, keys):
        seen.append((tuple(keys), conditioning))
        results = sample(self, conditioning, latents, keys)
        for i, key in enumerate(keys):
            if key == "disc002" or (key == "disc001" and len(seen) == 1):
                results[i] = Failed("near_constant", "grey")
        return results

    monkeypatch.setattr(Retrieval, "sample", unlucky)
    job = GenerateStage(batch_size=4).prepare(CONFIG, run_of(fitted))
    column = fitted.column("images")
    outcomes = list(job(iter([column.row(i) for i in range(4)])))
    assert [outcome.key for outcome in outcomes] == [f"disc{i:03d}" for i in range(4)]
    assert decode_json(outcomes[1].fields["json"])["attempt"] == 1
    assert (outcomes[2].reason, outcomes[2].detail) == ("near_constant", "grey")
    assert [keys for keys, _ in seen] == [
        tuple(f"disc{i:03d}" for i in range(4)), ("disc001",), ("disc002",), ("disc002",)
    ]  # fmt: skip
    assert not torch.equal(seen[2][1][0], seen[3][1][0])


def test_a_foreground_of_another_encoder_is_refused(fitted):
    foreground = Foreground.read(fitted.artifact("foreground"))
    with pytest.raises(RefusedError, match=r"another encoder \(differing: weights\)"):
        foreground.check_encoder({**foreground.encoder, "weights": "0"})


def test_a_dataset_too_small_for_the_fit_says_so(tmp_path):
    dataset = discs_dataset(tmp_path, images=6)
    with pytest.raises(DataError, match="has 6 images that can be decoded, and a component takes 10 or more"):
        run_stage(ForegroundStage(), CONFIG.foreground(), dataset, CPU)


def test_an_undecided_sign_leaves_a_contact_sheet_and_stops_what_depends_on_it_alone(fresh, monkeypatch):
    monkeypatch.setattr("viewkit.pipelines.foreground.sign.MIN_T", 1e9)
    fit = run_stage(ForegroundStage(), CONFIG.foreground(), fresh, CPU)
    assert fit.numbers["sign"] == "open" and (fresh.path / "foreground" / "masks.png").stat().st_size > 1000
    with pytest.raises(DataError, match=r"run 'viewkit generate DATASET' with --sign \+ or --sign -"):
        run_stage(GenerateStage(batch_size=8), CONFIG, fresh, CPU)
    assert not (fresh.path / "genview").exists()
    for strategy in ("constant", "random"):
        stage = GenerateStage(batch_size=8, column=f"genview_{strategy}")
        assert run_stage(stage, replace(CONFIG, strategy=strategy), fresh, CPU).kept == 39
        assert all(
            "foreground_share" not in decode_json(each["json"]) for each in rows_of(fresh, stage.writes).values()
        )
    assert generate(fresh, replace(CONFIG, sign="-")).kept == 39, "without another fit"
    fresh.check_inputs("genview_constant")


def test_one_fit_serves_both_signs(fitted):
    keys = [f"disc{i:03d}" for i in range(4)]
    images = fitted.column("images")
    counts = {}
    for sign in ("+", "-"):
        job = GenerateStage(batch_size=4).prepare(replace(CONFIG, sign=sign), run_of(fitted))
        rows = job(iter([images.row(images.place_of[key]) for key in keys]))
        counts[sign] = [decode_json(row.fields["json"])["foreground_share"] for row in rows]
    assert counts["+"] != counts["-"]
    auto = Foreground.read(fitted.artifact("foreground")).with_sign("auto")
    flipped = auto.with_sign("-" if auto.stored_sign == "+" else "+")
    assert torch.equal(flipped.direction, -auto.direction) and flipped.threshold == auto.opposite


def test_a_table_by_key_needs_no_sign(fresh, monkeypatch, tmp_path):
    monkeypatch.setattr("viewkit.pipelines.foreground.sign.MIN_T", 1e9)
    run_stage(ForegroundStage(), CONFIG.foreground(), fresh, CPU)
    table = tmp_path / "levels.csv"
    table.write_text("key,level\n" + "".join(f"{key},100\n" for key in fresh.column("images").keys()))  # noqa: SIM118
    config = replace(CONFIG, strategy="table")
    assert run_stage(GenerateStage(batch_size=8, levels=table), config, fresh, CPU).kept == 39
    shares = tmp_path / "shares.csv"
    shares.write_text("share,level\n0,0\n0.5,100\n")
    with pytest.raises(DataError, match=r"remains open.*where neither column of that sheet shows the objects"):
        run_stage(GenerateStage(batch_size=8, levels=shares, column="genview_share"), config, fresh, CPU)


def test_a_subset_gets_views_and_the_others_are_left_out_on_purpose(fitted, tmp_path):
    strict = Execution(device="cpu", workers=1, max_rejects=0.05)
    summary = run_stage(GenerateStage(batch_size=8), replace(CONFIG, subset=10), fitted, strict)
    assert summary.kept == 10 and summary.rejected["not_in_subset"] == 30
    assert set(fitted.column("genview").keys()) == set(smallest(fitted.column("images").keys(), 10))
    listed = tmp_path / "keys.txt"
    listed.write_text("disc003\n\ndisc007\n")
    named = run_stage(GenerateStage(batch_size=8, column="genview_two", only=listed), CONFIG, fitted, strict)
    assert named.kept == 2 and list(fitted.column("genview_two").keys()) == ["disc003", "disc007"]
    listed.write_text("disc003\ndisc999\n")
    with pytest.raises(DataError, match="1 of its keys are no images \\(first: disc999\\)"):
        run_stage(GenerateStage(batch_size=8, column="genview_none", only=listed), CONFIG, fitted, strict)
    with pytest.raises(ConfigError, match="give one of them"):
        GenerateStage(only=listed).check(replace(CONFIG, subset=3))


def test_a_sparse_subset_costs_what_its_images_cost_and_its_views_are_the_same(made, fitted, monkeypatch):
    calls = []
    sample = Retrieval.sample

    def counted(self, *arguments):
        calls.append(1)
        return sample(self, *arguments)

    monkeypatch.setattr(Retrieval, "sample", counted)
    run_stage(GenerateStage(batch_size=8), replace(CONFIG, subset=10), fitted, CPU)
    assert len(calls) == 3, "one for each shard, of which none holds more than 8 of the 10"
    whole, few = rows_of(made[0]), rows_of(fitted)
    assert len(few) == 10 and all(few[key] == whole[key] for key in few)


def test_the_tasks_of_an_array_wait_for_the_fit_and_verify_it_together(fitted, monkeypatch):
    """Tasks that start together: the first one's lock is waited for, and a finished fit is read side by side."""
    said, done = [], []

    class Progress(Silent):
        def message(self, text):
            said.append(text)

    def task():
        part = Execution(device="cpu", workers=1, part="0/2", max_rejects=1.0)
        done.append(run_stage(ForegroundStage(), CONFIG.foreground(), fitted, part, Progress()))

    monkeypatch.setattr(
        "viewkit.pipelines.engine.run.interruptible", lambda text: nullcontext()
    )  # signals: main thread
    with artifact_lock(fitted.path, "foreground", shared=False):
        thread = threading.Thread(target=task)
        thread.start()
        while not said:
            time.sleep(0.01)
        assert not done
        with pytest.raises(RefusedError, match="another process is writing 'foreground'"):
            run_stage(ForegroundStage(), CONFIG.foreground(), fitted, CPU)
    thread.join()
    assert [each.written for each in done] == [0] and "waiting for it" in said[0]
    with artifact_lock(fitted.path, "foreground", shared=True):
        assert run_stage(ForegroundStage(), CONFIG.foreground(), fitted, CPU).written == 0


def test_precision_auto_is_half_on_a_gpu_for_networks_from_elsewhere_and_the_identity_says_which():
    config = GenerateConfig(encoder="open_clip:ViT-H-14/laion2b_s32b_b79k")
    stage = GenerateStage()
    assert stage.on_device(config, "cpu").precision == "fp32" and stage.on_device(config, "cuda:0").precision == "fp16"
    fit = ForegroundStage()
    assert fit.on_device(config.foreground(), "cuda:0").precision == "fp16"
    assert fit.on_device(replace(config, precision="bf16").foreground(), "cuda:0").precision == "bf16"
    assert fit.on_device(CONFIG.foreground(), "cuda:0").precision == "fp32", "viewkit's own estimator"
    assert fit.settings(fit.on_device(CONFIG.foreground(), "cpu"))["precision"] == "fp32"


@pytest.mark.parametrize(("side", "stored"), [(32, 32), (64, 64), (96, 128), (375, 512), (20, 32), (2000, 512)])
def test_views_are_stored_at_the_size_class_of_the_images(side, stored, tmp_path):
    dataset = Dataset(tmp_path / "d")
    png = encode_png(np.zeros((side, side + 5, 3), np.uint8))
    write_column(dataset, "images", [Row(f"k{i}", {"png": png}) for i in range(3)], 2)
    assert natural_px(dataset.column("images")) == stored


def test_the_plan_counts_passes(packed):
    plan = plan_stage(ForegroundStage(), CONFIG.foreground(), packed, CPU)
    assert (plan["images"], plan["sample"], plan["encoded"]) == (40, 30, 70)
    assert plan["estimated_s"] >= 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"level": 1000}, "level is 1000"),
        ({"guidance": 0.5}, "guidance is 0.5"),
        ({"render_px": 100}, "render_px is 100"),
        ({"share": 1.0}, "share is 1.0"),
        ({"sample": 3}, "sample is 3"),
        ({"attempts": 0}, "attempts is 0"),
        ({"encoder": "clip"}, "encoder is 'clip'"),
        ({"encoder": "open_clip:ViT-H-14"}, "encoder is 'open_clip:ViT-H-14'"),
    ],
)
def test_impossible_options_are_named(options, message):
    with pytest.raises(ConfigError, match=message):
        GenerateConfig(**options)


def test_the_fit_ignores_options_of_generation():
    fits = {replace(CONFIG, steps=steps, seed=steps).foreground() for steps in (5, 20)}
    assert fits == {ForegroundConfig(encoder="estimator", sample=30, index=True, precision="fp32")}

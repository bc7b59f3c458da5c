"""What `generate` does with broken views, with too little memory, and with several views an image."""

import re

import numpy as np
import pytest
import torch
from reference.genview_pipeline import tiny_pipeline
from reference.genview_worlds import CPU, discs_dataset

from viewkit.pipelines.encoders.clip_folders import ClipFolderEncoder
from viewkit.pipelines.engine.contract import Run, Silent
from viewkit.pipelines.engine.run import run_stage
from viewkit.pipelines.foreground.stage import ForegroundStage
from viewkit.pipelines.generate.config import GenerateConfig
from viewkit.pipelines.generate.generators.interface import Failed, generator_class
from viewkit.pipelines.generate.generators.unclip import Unclip
from viewkit.pipelines.generate.micro_batches import MicroBatches
from viewkit.pipelines.generate.stage import GenerateStage
from viewkit.pipelines.weights.cards import GENERATORS, folder_encoders, load
from viewkit.shards.codecs import decode_image, decode_json
from viewkit.shards.errors import ConfigError, DataError
from viewkit.shards.row import Reject
from viewkit.shards.view_fields import views_of_fields

OPTIONS = {"generator": "unclip", "sample": 10, "steps": 1, "render_px": 32, "output_px": 32, "sign": "+"}
KEYS = [f"disc{i:03d}" for i in range(6)]


class Told(Silent):
    """Keeps what a stage says."""

    def __init__(self):
        self.texts = []

    def message(self, text):
        self.texts.append(text)


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    path = tmp_path_factory.mktemp("weights")
    tiny_pipeline().save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def datasets(weights, tmp_path_factory):
    """By precision: 12 images and their foreground."""
    made = {}
    for precision in ("fp32", "bf16"):
        made[precision] = discs_dataset(tmp_path_factory.mktemp(precision), images=12)
        config = GenerateConfig(**OPTIONS, precision=precision)
        run_stage(ForegroundStage(weights, 6), config.foreground(), made[precision], CPU)
    return made


def views(datasets, weights, *, batch_size=6, told=None, precision="fp32", **options):
    """Outcomes of the first six images."""
    dataset = datasets[precision]
    config = GenerateConfig(**{**OPTIONS, "precision": precision, **options})
    run = Run(dataset, dataset.path / "genview", "generate", 0, "cpu", told or Silent())
    column = dataset.column("images")
    return list(GenerateStage(weights, batch_size).prepare(config, run)(iter([column.row(i) for i in range(6)])))


def facts(row):
    return decode_json(row.fields["json"])


def pictures(rows):
    return np.stack([decode_image(row.fields) for row in rows]).astype(int)


@pytest.fixture(scope="module")
def plain(datasets, weights):
    return views(datasets, weights)


def unlucky(monkeypatch, broken):
    """`broken(generator, key, call)` says which views fail. Returns the calls: precision and keys of each."""
    sample, calls = Unclip.sample, []

    def sampled(self, conditioning, latents, keys):
        calls.append((self.precision, list(keys)))
        results = sample(self, conditioning, latents, keys)
        failed = Failed("non_finite", "latents or pixels are not finite")
        return [failed if broken(self, key, len(calls)) else view for key, view in zip(keys, results, strict=True)]

    monkeypatch.setattr(Unclip, "sample", sampled)
    return calls


def test_a_broken_view_is_sampled_again_with_another_seed(datasets, weights, plain, monkeypatch):
    calls = unlucky(monkeypatch, lambda generator, key, call: key == "disc001" and call == 1)
    rows = views(datasets, weights)
    assert [facts(row)["attempt"] for row in rows] == [0, 1, 0, 0, 0, 0]
    assert [row == other for row, other in zip(rows, plain, strict=True)] == [True, False, True, True, True, True]
    assert [len(keys) for _, keys in calls] == [6, 1], "what is sampled again costs no whole batch"


def test_what_fails_in_half_precision_is_sampled_once_in_fp32(datasets, weights, monkeypatch):
    calls = unlucky(monkeypatch, lambda generator, key, call: key == "disc002" and generator.precision == "bf16")
    rows = views(datasets, weights, precision="bf16", attempts=2)
    assert [precision for precision, _ in calls] == ["bf16", "bf16", "fp32"]
    assert facts(rows[2]) | {"attempt": 2, "precision": "fp32"} == facts(rows[2])
    assert ["precision" in facts(row) for row in rows] == [False, False, True, False, False, False]


def test_without_memory_for_the_fp32_copy_what_fails_is_a_reject_and_the_job_goes_on(datasets, weights, monkeypatch):
    calls, told, loads = unlucky(monkeypatch, lambda generator, key, call: key == "disc002"), Told(), []
    load = Unclip.load.__func__

    def hungry(cls, folder, width, precision, solver):
        loads.append(precision)
        if precision == "fp32":
            raise torch.OutOfMemoryError("CUDA out of memory")
        return load(cls, folder, width, precision, solver)

    monkeypatch.setattr(Unclip, "load", classmethod(hungry))
    rows = views(datasets, weights, precision="bf16", attempts=2, batch_size=3, told=told)
    assert rows[2] == Reject("disc002", "non_finite", "latents or pixels are not finite")
    assert [row.key for row in rows] == KEYS
    assert sum(isinstance(row, Reject) for row in rows) == 1
    assert {precision for precision, _ in calls} == {"bf16"}
    assert loads == ["bf16", "fp32"]
    assert told.texts == [
        "generate: no memory for a copy of the generator in fp32, so images that fail in bf16 are rejected; to retry "
        "them use --precision fp32 or a device with more memory"
    ]


def test_what_fails_in_fp32_too_is_a_reject_with_its_reason(datasets, weights, monkeypatch):
    calls = unlucky(monkeypatch, lambda generator, key, call: key == "disc002")
    rows = views(datasets, weights, precision="bf16", attempts=2)
    assert rows[2] == Reject("disc002", "non_finite", "latents or pixels are not finite")
    assert [precision for precision, _ in calls] == ["bf16", "bf16", "fp32"]
    assert [row.key for row in rows] == KEYS


def test_in_fp32_there_is_no_extra_attempt(datasets, weights, monkeypatch):
    calls = unlucky(monkeypatch, lambda generator, key, call: key == "disc002")
    assert isinstance(views(datasets, weights, attempts=2)[2], Reject)
    assert [precision for precision, _ in calls] == ["fp32", "fp32"]


def test_an_encoder_that_gives_no_numbers_is_a_reject(datasets, weights, monkeypatch):
    forward = ClipFolderEncoder.forward

    def broken(self, x):
        tokens, embedding = forward(self, x)
        if len(embedding) > 1:
            embedding[3] = torch.inf
        return tokens, embedding

    monkeypatch.setattr(ClipFolderEncoder, "forward", broken)
    rows = views(datasets, weights)
    assert rows[3] == Reject("disc003", "non_finite", "the encoder's tokens or embedding are not finite")
    assert sum(isinstance(row, Reject) for row in rows) == 1


def test_too_little_memory_halves_the_batches_says_so_and_marks_the_rows(datasets, weights, plain, monkeypatch):
    denoise, told = Unclip.denoise, Told()

    def hungry(self, conditioning, latents):
        if len(latents) > 3:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return denoise(self, conditioning, latents)

    monkeypatch.setattr(Unclip, "denoise", hungry)
    rows = views(datasets, weights, told=told)
    assert told.texts == ["generate: out of memory; going on with batches of 3 instead of 6"]
    assert [facts(row) for row in rows] == [{**facts(row), "batch_size": 3} for row in plain]
    assert np.abs(pictures(rows) - pictures(plain)).mean() < 0.1


def test_a_decoder_that_wants_too_much_gets_smaller_batches_alone(datasets, weights, plain, monkeypatch):
    decode, told, sizes = Unclip.decode, Told(), []

    def hungry(self, x):
        sizes.append(len(x))
        if len(x) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return decode(self, x)

    monkeypatch.setattr(Unclip, "decode", hungry)
    rows = views(datasets, weights, told=told)
    assert told.texts == ["generate: decoding: out of memory; going on with batches of 2 instead of 4"]
    assert sizes == [4, 2, 2, 2]
    assert [facts(row) for row in rows] == [{**facts(row), "decoded_by": 2} for row in plain]
    assert np.abs(pictures(rows) - pictures(plain)).mean() < 0.1


def test_memory_too_small_for_one_image_is_one_clear_line(datasets, weights, monkeypatch):
    def hungry(self, conditioning, latents):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(Unclip, "denoise", hungry)
    with pytest.raises(DataError, match="too small for a single image; use --precision bf16") as caught:
        views(datasets, weights)
    assert "\n" not in str(caught.value)


def test_micro_batches_are_full_keep_the_order_and_stay_small_once_halved():
    told, seen = [], []

    def work(rows):
        seen.append(rows)
        if len(rows) > 2:
            raise torch.OutOfMemoryError
        return [10 * row for row in rows]

    micro = MicroBatches(8, "x", told.append)
    assert micro.run(5, work) == [0, 10, 20, 30, 40]
    assert seen == [[0, 1, 2, 3, 4, 0, 1, 2], [0, 1, 2, 3], [0, 1], [2, 3], [4, 4]]
    assert micro.run(3, work) == [0, 10, 20]
    assert [re.findall(r"\d+", text) for text in told] == [["4", "8"], ["2", "4"]]
    assert micro.shrunk


def test_other_errors_are_not_taken_for_a_lack_of_memory():
    def work(rows):
        raise RuntimeError("shape mismatch")

    with pytest.raises(RuntimeError, match="shape mismatch"):
        MicroBatches(4, "x", lambda text: None).run(4, work)


def test_several_views_are_one_row_and_the_first_is_the_single_one(datasets, weights, plain, monkeypatch):
    passes, forward = [], ClipFolderEncoder.forward
    monkeypatch.setattr(ClipFolderEncoder, "forward", lambda self, x: passes.append(len(x)) or forward(self, x))
    rows = views(datasets, weights, views_per_image=3)
    assert passes[1:] == [6]  # the first is the probe of the encoder; then one pass for all views
    for row, single in zip(rows, plain, strict=True):
        assert set(row.fields) == {"jpg", "1.jpg", "2.jpg", "json"}
        assert row.fields["jpg"] == single.fields["jpg"]
        assert len({view["jpg"] for view in views_of_fields(row.fields)}) == 3
        about = facts(row)
        assert about.pop("views") == [{"attempt": 0}] * 3
        assert about == facts(single)


def test_an_image_of_which_one_view_fails_is_a_reject(datasets, weights, monkeypatch):
    seen = []

    def broken(generator, key, call):
        seen.append(key)
        return key == "disc004" and seen.count(key) % 2 == 0

    unlucky(monkeypatch, broken)
    rows = views(datasets, weights, views_per_image=2, batch_size=12, attempts=1)
    assert [isinstance(row, Reject) for row in rows] == [key == "disc004" for key in KEYS]


def test_views_of_an_image_have_the_same_level_and_other_noise(datasets, weights):
    rows = views(datasets, weights, views_per_image=2, strategy="random")
    assert len({facts(row)["level"] for row in rows}) > 1
    assert all(row.fields["jpg"] != row.fields["1.jpg"] for row in rows)


@pytest.mark.parametrize("name", GENERATORS)
def test_every_generator_of_the_table_is_there(name):
    assert generator_class(name).name == name


@pytest.mark.parametrize("name", folder_encoders())
def test_an_encoder_in_a_folder_has_the_name_of_its_card(name):
    assert load(folder_encoders()[name]).name == name


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"generator": "dalle"}, "generator is 'dalle'; choose one of retrieval, own, unclip"),
        ({"guidance_start": 0.5, "guidance_stop": 0.5}, "0 <= start < stop <= 1"),
        ({"guidance_stop": 1.5}, "guidance_stop 1.5"),
        ({"guidance_rescale": 2.0}, "guidance_rescale is 2.0"),
        ({"quality": 0}, "quality is 0"),
        ({"quality": 101}, "quality is 101"),
        ({"views_per_image": 0}, "views_per_image is 0"),
        ({"steps": 1001}, "steps is 1001"),
        ({"level": -1}, "level is -1"),
        ({"render_px": 0}, "render_px is 0"),
    ],
)
def test_impossible_options_are_refused(options, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        GenerateConfig(**options)


@pytest.mark.parametrize(("generator", "scale"), [("unclip", 10.0), ("retrieval", 1.0), ("kandinsky", 4.0)])
def test_the_guidance_scale_is_the_generators_own_unless_given(generator, scale):
    assert GenerateConfig(generator=generator).guidance_scale == scale
    assert GenerateConfig(generator=generator, guidance=3.0).guidance_scale == 3.0


@pytest.mark.parametrize("size", [0, -1, 5000])
def test_a_batch_size_out_of_range_is_refused(size):
    with pytest.raises(ConfigError, match=f"--batch-size is {size}"):
        GenerateStage(batch_size=size)


def test_a_table_of_levels_needs_strategy_and_file(datasets, tmp_path):
    with pytest.raises(ConfigError, match="takes both, --strategy table"):
        GenerateStage().inputs(GenerateConfig(strategy="table"), datasets["fp32"])
    with pytest.raises(ConfigError, match="takes both, --strategy table"):
        GenerateStage(levels=tmp_path / "levels.csv").inputs(GenerateConfig(), datasets["fp32"])


def test_a_users_table_decides_the_levels_and_is_part_of_the_identity(datasets, weights, tmp_path):
    dataset, config = datasets["fp32"], GenerateConfig(**OPTIONS, strategy="table")
    table = tmp_path / "levels.csv"
    table.write_text("key,level\n" + "".join(f"disc{i:03d},{7 * i}\n" for i in range(12)))
    stage = GenerateStage(weights, 6, levels=table)
    rows = stage.prepare(config, Run(dataset, dataset.path / "genview", "generate", 0))(
        iter([dataset.column("images").row(i) for i in range(6)])
    )
    assert [facts(row)["level"] for row in rows] == [0, 7, 14, 21, 28, 35]
    before = stage.inputs(config, dataset)["levels"]
    table.write_text(table.read_text().replace(",7\n", ",8\n"))
    assert stage.inputs(config, dataset)["levels"] != before

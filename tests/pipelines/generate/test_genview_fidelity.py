"""How near views are to their images, and which of them are shown."""

import json
import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference.genview_worlds import CPU, discs_dataset

from viewkit.cli.main import run as main
from viewkit.pipelines.encoders.open import open_encoder
from viewkit.pipelines.engine.contract import Silent
from viewkit.pipelines.engine.run import run_stage
from viewkit.pipelines.foreground.stage import ForegroundStage
from viewkit.pipelines.generate.config import GenerateConfig
from viewkit.pipelines.generate.fidelity import cosines, summarise, table_lines
from viewkit.pipelines.generate.fidelity_config import FidelityConfig
from viewkit.pipelines.generate.fidelity_stage import FidelityStage, summary_lines
from viewkit.pipelines.generate.stage import GenerateStage
from viewkit.pipelines.report.generated import read_levels, spread_over_levels
from viewkit.shards.codecs import decode_image, decode_json
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ConfigError, DataError, ViewkitError


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    dataset = discs_dataset(tmp_path_factory.mktemp("discs"), images=24)
    config = GenerateConfig(sample=24, strategy="random", sign="+")
    run_stage(ForegroundStage(batch_size=8), config.foreground(), dataset, CPU)
    run_stage(GenerateStage(batch_size=8), config, dataset, CPU)
    summary = run_stage(FidelityStage(batch_size=5), FidelityConfig(encoder="estimator"), dataset, CPU)
    return dataset, summary.numbers


def test_means_and_shares_by_level_are_those_of_a_plain_sum():
    found = summarise(np.array([1.0, 0.5, 0.0, 0.5]), np.array([0.1, 0.3, 0.1, 0.3]), np.array([0, 400, 400, 400]))
    assert (found.all.images, found.all.cosine, found.chance) == (4, 0.5, 0.2)
    assert found.all.error == pytest.approx(np.sqrt(1 / 6) / 2)
    assert {level: (mean.images, mean.cosine) for level, mean in found.levels.items()} == {
        0: (1, 1.0),
        400: (3, pytest.approx(1 / 3)),
    }
    assert [each["share"] for each in found.numbers()["levels"].values()] == [0.25, 0.75]


def test_cosine_of_a_zero_row_is_zero():
    np.testing.assert_allclose(cosines(np.array([[3.0, 4.0], [0, 0]]), np.array([[4.0, 3.0], [1, 0]])), [0.96, 0])


def test_the_stage_measures_what_a_plain_loop_measures(made):
    dataset, numbers = made
    images, views = dataset.column("images"), dataset.column("genview")
    encoder = open_encoder("estimator", dataset)

    def embed(fields):
        return encoder.encode_images([decode_image(fields)])[1][0].double().numpy()

    by_level = {}
    for key in list(views.keys()):
        fields = views.fields(views.place_of[key])
        a, b = embed(images.fields(images.place_of[key])), embed(fields)
        cosine = a @ b / np.linalg.norm(a) / np.linalg.norm(b)
        by_level.setdefault(str(decode_json(fields["json"])["level"]), []).append(cosine)
    assert numbers["cosine"] == pytest.approx(np.mean([c for level in by_level.values() for c in level]), abs=2e-5)
    assert set(numbers["levels"]) == set(by_level)
    for level, found in numbers["levels"].items():
        assert found["cosine"] == pytest.approx(np.mean(by_level[level]), abs=2e-5)
        assert found["share"] == pytest.approx(len(by_level[level]) / 24, abs=1e-5)
    assert (numbers["generator"], numbers["strategy"]) == ("retrieval", "random")


def test_views_are_nearer_their_images_than_others(made):
    _, numbers = made
    assert numbers["chance"] < numbers["cosine"] <= 1


def test_the_file_holds_the_numbers_and_the_table_shows_them(made):
    dataset, numbers = made
    content = json.loads(dataset.artifact("fidelity").path("fidelity.json").read_bytes())
    assert content["cosine"] == numbers["cosine"]
    assert content["encoder"]["encoder"] == "estimator"
    header, row, judged, note, title, *by_level = summary_lines(dataset)
    assert judged == "judged by estimator" and note.startswith("note: the views were made with the embeddings of 'est")
    assert header.split()[:4] == ["views", "images", "cosine", "chance"]
    assert row.startswith(f"retrieval random      24  {numbers['cosine']:.3f} +- ")
    assert title == "retrieval random, by level:"
    assert [int(line.split()[0]) for line in by_level[1:-1]] == [each["level"] for each in numbers["table"]]
    assert sum(each["images"] for each in numbers["table"]) == 24
    assert {each["copied"] for each in numbers["table"]} == {1.0}  # retrieved views are other images, byte for byte
    assert {each["diversity"] for each in numbers["table"]} == {None}


def test_the_usual_judge_had_no_part_in_making_the_views(made, tmp_path):
    dataset, numbers = made
    assert (numbers["judge"], numbers["made_with"], numbers["independent"]) == ("estimator", "estimator", False)
    said = []
    progress = Silent()
    progress.message = said.append
    copied = Dataset(shutil.copytree(dataset.path, tmp_path / "copy"))
    shutil.rmtree(copied.path / "fidelity")
    found = run_stage(FidelityStage(batch_size=5), FidelityConfig(), copied, CPU, progress).numbers
    assert (found["judge"], found["made_with"], found["independent"]) == ("colour", "estimator", True)
    assert found["chance"] < found["cosine"] <= 1 and said == []
    shutil.rmtree(copied.path / "fidelity")
    run_stage(FidelityStage(batch_size=5), FidelityConfig(encoder="estimator"), copied, CPU, progress)
    assert "'estimator' judges them" in said[0]


def test_a_table_of_several_has_a_dash_where_a_level_is_missing():
    one = summarise(np.array([0.5, 0.6]), np.zeros(2), np.array([0, 100])).numbers()
    other = summarise(np.array([0.9, 0.8]), np.zeros(2), np.array([100, 100])).numbers()
    lines = table_lines([("adaptive", one), ("constant 100", other)])
    assert lines[1].endswith("50.0% 0.500     50.0% 0.600")
    assert lines[2].endswith("-           100.0% 0.850")


def test_other_columns_have_a_fidelity_of_their_own():
    assert FidelityStage(column="kandinsky").writes == "fidelity_kandinsky"
    with pytest.raises(ConfigError, match="--column is 'a/b'"):
        FidelityStage(column="a/b")


def test_a_column_without_noise_levels_is_named(made):
    dataset, _ = made
    with pytest.raises(DataError, match=r"column 'images', row \S+: is no generated view with its noise level"):
        run_stage(FidelityStage(column="images"), FidelityConfig(), dataset, CPU)


def test_what_cannot_be_measured_is_named(tmp_path):
    with pytest.raises(ConfigError, match="encoder is 'clip'"):
        FidelityConfig(encoder="clip")
    with pytest.raises(ConfigError, match="sample is 1"):
        FidelityConfig(sample=1)
    with pytest.raises(ConfigError, match="known is 0"):
        FidelityConfig(known=0)
    with pytest.raises(ViewkitError, match="genview"):
        run_stage(FidelityStage(), FidelityConfig(), discs_dataset(tmp_path, images=3), CPU)


def test_a_folder_that_the_judge_does_not_read_is_refused_before_anything_runs(tmp_path, capsys):
    assert main(["fidelity", str(tmp_path / "none"), "--weights", str(tmp_path)]) == 2
    assert "a generator's folder, and encoder 'colour' reads none; " in capsys.readouterr().err


@given(st.dictionaries(st.text("abcdef", min_size=1), st.sampled_from([0, 100, 400])), st.integers(0, 12))
def test_shown_rows_are_spread_over_all_levels(levels, count):
    shown = spread_over_levels(levels, count)
    assert len(shown) == len(set(shown)) == min(count, len(levels))
    assert [levels[key] for key in shown] == sorted(levels[key] for key in shown)
    taken = {level: sum(levels[key] == level for key in shown) for level in levels.values()}
    full = {level for level in taken if taken[level] == list(levels.values()).count(level)}
    rest = [number for level, number in taken.items() if level not in full]
    assert not rest or max(taken.values()) - min(rest) <= 1


def test_levels_are_read_from_the_column(made):
    dataset, _ = made
    levels = read_levels(dataset.column("genview"), 10)
    assert len(levels) == 10
    assert set(levels.values()) <= {0, 100, 200, 300, 400}

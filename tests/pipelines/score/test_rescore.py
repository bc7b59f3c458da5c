from dataclasses import replace

import numpy as np
import pytest
from vs2fi_world import make_estimator, make_genview, make_images

from viewkit.pipelines.engine.execution import Execution
from viewkit.pipelines.engine.run import run_stage
from viewkit.pipelines.histograms.config import HistogramsConfig
from viewkit.pipelines.histograms.stage import HistogramsStage
from viewkit.pipelines.models.estimator import Estimator
from viewkit.pipelines.pairs.column import LEVEL
from viewkit.pipelines.score.config import ScoreConfig
from viewkit.pipelines.score.rescore import RescoreConfig, RescoreStage, similarities
from viewkit.pipelines.score.stage import ScoreStage
from viewkit.shards.codecs import decode_npy
from viewkit.shards.errors import ConfigError, DataError, MissingError, RefusedError
from viewkit.shards.row import Row
from viewkit.shards.sources import check_alignment

ON_CPU = Execution(device="cpu", workers=1)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    dataset = make_images(tmp_path_factory.mktemp("rescore") / "d", count=20, shard_rows=12)
    make_estimator(dataset)
    run_stage(HistogramsStage(), HistogramsConfig(negatives=9, images=20), dataset, ON_CPU)
    run_stage(ScoreStage(), ScoreConfig(rounds=1), dataset, ON_CPU)
    return dataset


def all_fields(dataset, name):
    column = dataset.column(name)
    return [column.fields(index) for index in range(column.num_rows)]


def test_rescoring_with_the_same_gamma_gives_the_same_bytes_without_an_estimator(dataset, monkeypatch):
    monkeypatch.setattr(Estimator, "embed", None)
    run_stage(RescoreStage(column="same"), RescoreConfig(), dataset, ON_CPU)
    assert all_fields(dataset, "same") == all_fields(dataset, "pairs")


def test_rescoring_with_another_gamma_equals_scoring_with_it(dataset):
    gamma = 0.101
    run_stage(RescoreStage(column="other"), RescoreConfig(gamma=gamma), dataset, ON_CPU)
    from viewkit.pipelines.engine.contract import Run

    stage, config = ScoreStage(), ScoreConfig(rounds=1, gamma=gamma)
    score = stage.prepare(config, Run(dataset, dataset.path / "elsewhere", "score"))
    scored = [row.fields for shard in range(2) for row in score(stage.sources(config, dataset).rows(shard))]
    found = all_fields(dataset, "other")
    assert found == scored
    before = all_fields(dataset, "pairs")
    higher, lower = (np.array([decode_npy(row["scores.npy"])[..., LEVEL] for row in rows]) for rows in (found, before))
    assert np.all(higher >= lower) and np.any(higher > lower)


def test_rows_that_the_source_rejected_are_rejected_with_its_reasons(dataset, tmp_path):
    """The first and the last row of a shard among them; the column then accounts for every image, as its source."""
    lacking = ["row0000", "row0005", "row0011", "row0019"]
    copy = copy_of(dataset, tmp_path / "copy", "pairs", "same", "other")
    make_genview(copy, missing=lacking, reason="not_in_subset")
    strict = Execution(device="cpu", workers=1, max_rejects=0.0)
    run_stage(ScoreStage(), ScoreConfig(rounds=1, candidates="generated"), copy, strict)
    summary = run_stage(RescoreStage(), RescoreConfig(gamma=0.101), copy, strict)
    assert (summary.kept, dict(summary.rejected)) == (16, {"not_in_subset": 4})
    source, rescored = copy.column("pairs"), copy.column("pairs_rescored")
    assert rescored.rejects == source.rejects and list(rescored.rejects) == lacking
    check_alignment(copy.column("images"), rescored)
    run_stage(RescoreStage("pairs_rescored", "again"), RescoreConfig(), copy, strict)
    assert all_fields(copy, "again") == all_fields(copy, "pairs")
    assert copy.column("again").rejects == source.rejects


def test_histograms_of_another_estimator_are_refused(dataset, tmp_path):
    import shutil

    copy = type(dataset)(shutil.copytree(dataset.path, tmp_path / "copy"))
    shutil.rmtree(copy.path / "histograms")
    make_estimator(copy, seed=1)
    run_stage(HistogramsStage(), HistogramsConfig(negatives=9, images=20), copy, ON_CPU)
    with pytest.raises(DataError, match=r"pairs: it was made from another 'estimator' than the one that is there now"):
        run_stage(RescoreStage(column="refused"), RescoreConfig(), copy, ON_CPU)


def test_histograms_of_another_estimator_are_refused_where_no_estimator_is_left(dataset, tmp_path):
    import shutil

    copy = copy_of(dataset, tmp_path / "copy", "histograms", "estimator")
    make_estimator(copy, seed=1)
    run_stage(HistogramsStage(), HistogramsConfig(negatives=9, images=20), copy, ON_CPU)
    shutil.rmtree(copy.path / "estimator")
    with pytest.raises(RefusedError, match=r"column 'pairs' and the histograms differ in estimator \(\w{12} against"):
        run_stage(RescoreStage(column="refused"), RescoreConfig(), copy, ON_CPU)


def copy_of(dataset, path, *without):
    import shutil

    return type(dataset)(shutil.copytree(dataset.path, path, ignore=shutil.ignore_patterns(*without)))


def test_rescoring_with_histograms_counted_anew_equals_scoring_with_them(dataset, tmp_path):
    """Other N, bins and prior; the pairs that were scored with the old ones stay useful."""
    copy = copy_of(dataset, tmp_path / "copy", "histograms", "same", "other")
    run_stage(HistogramsStage(), HistogramsConfig(negatives=4, images=20, bins=7, prior_positive=0.3), copy, ON_CPU)
    run_stage(RescoreStage(), RescoreConfig(gamma=0.21), copy, ON_CPU)
    anew = copy_of(copy, tmp_path / "anew", "pairs", "pairs_rescored")
    run_stage(ScoreStage(), ScoreConfig(rounds=1, gamma=0.21), anew, ON_CPU)
    assert all_fields(copy, "pairs_rescored") == all_fields(anew, "pairs") != all_fields(dataset, "pairs")
    copy.check_inputs("pairs_rescored")  # what the trainer asks
    with pytest.raises(DataError, match="made from another 'histograms'"):
        copy.check_inputs("pairs")


def test_a_rescored_column_can_be_rescored(dataset, tmp_path):
    copy = copy_of(dataset, tmp_path / "copy")
    run_stage(RescoreStage(column="once"), RescoreConfig(gamma=0.101), copy, ON_CPU)
    run_stage(RescoreStage(pairs="once", column="twice"), RescoreConfig(), copy, ON_CPU)
    assert all_fields(copy, "twice") == all_fields(copy, "pairs")
    assert "precision" in copy.column("twice").identity.inputs


def test_histograms_of_another_precision_are_refused(dataset, tmp_path):
    copy = copy_of(dataset, tmp_path / "copy", "histograms")
    run_stage(HistogramsStage(), HistogramsConfig(negatives=9, images=20, precision="bf16"), copy, ON_CPU)
    with pytest.raises(
        RefusedError, match=r"column 'pairs' and the histograms differ in precision \(fp32 against bf16\)"
    ):
        run_stage(RescoreStage(column="refused"), RescoreConfig(), copy, ON_CPU)


def test_rescoring_without_pairs_says_what_makes_them(dataset, tmp_path):
    with pytest.raises(MissingError, match=r"rescore: .* has no input 'pairs'; make it with 'viewkit score"):
        run_stage(
            RescoreStage(), RescoreConfig(), copy_of(dataset, tmp_path / "copy", "pairs", "same", "other"), ON_CPU
        )


def test_rows_with_another_number_of_exits_are_an_error_naming_one(dataset):
    fields = dataset.column("pairs").fields(0)
    with pytest.raises(DataError, match="row r has 6 exits and the histograms have 12"):
        similarities(Row("r", fields), 12)


def test_a_column_is_never_rescored_in_place():
    for column in ("pairs", "images", "runs", "../pairs", "a/b", ".pairs", "", "p" * 200):
        with pytest.raises(ConfigError, match=r"name a new one|pairs and column are both 'pairs'"):
            RescoreStage(column=column)
    with pytest.raises(ConfigError, match=r"pairs is '../pairs'; it must be the name of a column of pairs"):
        RescoreStage(pairs="../pairs")


def test_gamma_must_lie_in_0_to_1():
    with pytest.raises(ConfigError, match="gamma is 1"):
        replace(RescoreConfig(), gamma=1.0)


def test_histograms_of_another_policy_are_refused(dataset, tmp_path):
    copy = copy_of(dataset, tmp_path / "copy", "histograms")
    run_stage(HistogramsStage(), HistogramsConfig(negatives=9, images=20, policy="moco_v3"), copy, ON_CPU)
    with pytest.raises(RefusedError, match=r"sampled by different policies \('strengthened' against 'moco_v3'\)"):
        RescoreStage().inputs(RescoreConfig(), copy)


def test_histograms_of_a_policy_that_samples_alike_are_taken(dataset, tmp_path):
    copy = copy_of(dataset, tmp_path / "copy", "histograms")
    run_stage(HistogramsStage(), HistogramsConfig(negatives=9, images=20, policy="byol"), copy, ON_CPU)
    assert "histograms" in RescoreStage().inputs(RescoreConfig(), copy)


def test_histograms_of_specifications_in_turn_are_refused_by_score_and_rescore(dataset, tmp_path):
    copy = copy_of(dataset, tmp_path / "copy", "histograms")
    run_stage(HistogramsStage(), HistogramsConfig(negatives=9, images=20, pipelines="alternate"), copy, ON_CPU)
    for stage, config in ((ScoreStage("again"), ScoreConfig()), (RescoreStage(), RescoreConfig())):
        with pytest.raises(RefusedError, match=f"{stage.name}: the histograms were counted with --pipelines alternate"):
            stage.inputs(config, copy)

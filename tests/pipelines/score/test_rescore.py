from dataclasses import replace

import numpy as np
import pytest
from vs2fi_world import make_estimator, make_images

from viewkit.pipelines.execution import Execution
from viewkit.pipelines.histograms.config import HistogramsConfig
from viewkit.pipelines.histograms.stage import HistogramsStage
from viewkit.pipelines.models.estimator import Estimator
from viewkit.pipelines.runner import run_stage
from viewkit.pipelines.score.config import ScoreConfig
from viewkit.pipelines.score.rescore import RescoreConfig, RescoreStage
from viewkit.pipelines.score.stage import ScoreStage
from viewkit.pipelines.vs2fi.scores import LEVEL
from viewkit.shards.codecs import decode_npy
from viewkit.shards.errors import ConfigError, DataError

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
    from viewkit.pipelines.stage import Run

    stage, config = ScoreStage(), ScoreConfig(rounds=1, gamma=gamma)
    score = stage.prepare(config, Run(dataset, dataset.path / "elsewhere", "score"))
    scored = [row.fields for shard in range(2) for row in score(stage.sources(config, dataset).rows(shard))]
    found = all_fields(dataset, "other")
    assert found == scored
    before = all_fields(dataset, "pairs")
    higher, lower = (np.array([decode_npy(row["scores.npy"])[..., LEVEL] for row in rows]) for rows in (found, before))
    assert np.all(higher >= lower) and np.any(higher > lower)


def test_histograms_of_another_estimator_are_refused(dataset, tmp_path):
    import shutil

    copy = type(dataset)(shutil.copytree(dataset.path, tmp_path / "copy"))
    shutil.rmtree(copy.path / "histograms")
    make_estimator(copy, seed=1)
    run_stage(HistogramsStage(), HistogramsConfig(negatives=9, images=20), copy, ON_CPU)
    with pytest.raises(DataError, match=r"pairs: it was made from another 'estimator' than the one that is there now"):
        run_stage(RescoreStage(column="refused"), RescoreConfig(), copy, ON_CPU)


def test_a_column_is_never_rescored_in_place():
    for column in ("pairs", "images", "runs", "../pairs", "a/b", ".pairs", "", "p" * 200):
        with pytest.raises(ConfigError, match="name a new one"):
            RescoreStage(column=column)


def test_gamma_must_lie_in_0_to_1():
    with pytest.raises(ConfigError, match="gamma is 1"):
        replace(RescoreConfig(), gamma=1.0)

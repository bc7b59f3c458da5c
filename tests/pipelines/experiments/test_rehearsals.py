"""Every experiment runs end to end, in miniature: no option that is only parsed, no step that stands only in a note."""

import math

import pytest
from rehearsals import Stagehand

from viewkit.pipelines.experiments.experiment import experiment_names, load_experiment
from viewkit.pipelines.published import compare_published
from viewkit.pipelines.training.monitoring import read_metrics


@pytest.fixture(scope="module")
def stagehand(tmp_path_factory):
    return Stagehand(tmp_path_factory.mktemp("rehearsals"))


@pytest.mark.slow
@pytest.mark.parametrize("name", experiment_names())
def test_the_experiment_goes_through_and_measures_what_the_paper_prints(stagehand, name):
    experiment = load_experiment(name)
    dataset = stagehand.rehearse(experiment)
    runs = dataset.runs() if "compare" in experiment.stages else list(experiment.runs)
    assert len(runs) >= len(experiment.runs)
    for run in runs:
        artifact = dataset.artifact(f"runs/{run}")
        assert artifact.is_complete
        losses = [line["loss"] for line in read_metrics(artifact.folder / "metrics.jsonl")]
        assert losses and all(math.isfinite(loss) for loss in losses)
    numbers = [
        each for each in compare_published(experiment.published, dataset) if "top5" not in each.metric
    ]  # of four classes
    absent = [(each.name, each.metric) for each in numbers if each.yours is None]
    assert absent == []

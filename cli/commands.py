"""Every command in one table: what it reads from the command line and which stages it runs."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from viewkit.cli.options import Argument

if TYPE_CHECKING:
    from viewkit.pipelines.stage import Stage
    from viewkit.shards.dataset import Dataset

DATASET = Argument("dataset", "folder of the dataset")


@dataclass(frozen=True)
class Step:
    """One stage of a command. stage: ``module:name`` below `viewkit.pipelines`; importing it may import torch.

    takes: names of the command's arguments that its constructor takes. config: method of the command's config that
    gives this stage's config, or None where it is the command's own.
    """

    stage: str
    takes: tuple[str, ...] = ()
    config: str | None = None

    def stage_class(self) -> "Callable[..., Stage[Any]]":
        return _load(self.stage)


@dataclass(frozen=True)
class StageCommand:
    """A command that runs stages in order. config: ``module:name``, imported to list the options, never torch.

    maps_rows: whether it writes a column, on several workers. closing: function of the dataset that gives the lines
    to print when all is done. page: file to open then, below the dataset.
    """

    name: str
    help: str
    config: str
    steps: tuple[Step, ...]
    arguments: tuple[Argument, ...] = (DATASET,)
    maps_rows: bool = False
    closing: str | None = None
    page: str | None = None

    def closing_lines(self, dataset: "Dataset") -> list[str]:
        return [] if self.closing is None else list(_load(self.closing)(dataset))

    def config_class(self) -> type:
        return _load(self.config)


def _load(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(f"viewkit.pipelines.{module}"), name)


PIPELINE = (
    StageCommand(
        "pack",
        "Pack images into a dataset: a folder, WebDataset tars, or demo:train and demo:test.",
        "pack.config:PackConfig",
        (Step("pack.stage:PackStage", ("source",)),),
        (Argument("source", "folder, tar, folder of tars, or demo:train / demo:test"), DATASET),
        maps_rows=True,
    ),
    StageCommand(
        "estimator",
        "Train the estimator: MoCo v3 with one linear exit a block.",
        "estimator.config:EstimatorConfig",
        (Step("estimator.stage:EstimatorStage"),),
    ),
    StageCommand(
        "generate",
        "Generate one view of every image, at a noise level its foreground allows.",
        "generate.config:GenerateConfig",
        (
            Step("generate.foreground_stage:ForegroundStage", ("weights",), "foreground"),
            Step("generate.stage:GenerateStage", ("weights",)),
        ),
        (DATASET, Argument("weights", "folder of a Stable unCLIP pipeline, see docs/generators.md", Path, option=True)),
        maps_rows=True,
    ),
    StageCommand(
        "histograms",
        "Fit the histograms that turn similarities into indicators.",
        "histograms.config:HistogramsConfig",
        (Step("histograms.stage:HistogramsStage"),),
    ),
    StageCommand(
        "score",
        "Score candidate pairs of views of every image.",
        "score.config:ScoreConfig",
        (Step("score.stage:ScoreStage"),),
        maps_rows=True,
    ),
    StageCommand(
        "rescore",
        "Read the indicators off stored similarities again, for another gamma or other histograms.",
        "score.config:RescoreConfig",
        (Step("score.rescore:RescoreStage", ("column",)),),
        (DATASET, Argument("column", "column to write", option=True, default="pairs_rescored")),
        maps_rows=True,
    ),
    StageCommand(
        "pretrain",
        "Pretrain an encoder on random, selected or generated pairs.",
        "pretrain.config:PretrainConfig",
        (Step("pretrain.stage:PretrainStage", ("name",)),),
        (DATASET, Argument("name", "name of the run, a folder below DATASET/runs", option=True, default="default")),
    ),
    StageCommand(
        "evaluate",
        "Accuracy of a run's encoder on a labelled dataset: kNN and linear.",
        "evaluate.config:EvaluateConfig",
        (Step("evaluate.stage:EvaluateStage", ("run", "test", "folder")),),
        (
            Argument("run", "folder of the run, DATASET/runs/NAME; its dataset's labels train the classifiers"),
            Argument("test", "labelled dataset to test on"),
            Argument("folder", "name of the result, a folder in the run's", option=True, default="eval"),
        ),
    ),
    StageCommand(
        "report",
        "Write one HTML page about a dataset and its runs.",
        "report.config:ReportConfig",
        (Step("report.stage:ReportStage"),),
        closing="report.accuracy:summary_lines",
        page="report/index.html",
    ),
)
"""The stages in the order of a full run."""

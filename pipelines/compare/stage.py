"""Stage `compare`: reads finished runs and their evaluations, writes what they say about each other."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from viewkit.pipelines.compare.config import CompareConfig, check_name
from viewkit.pipelines.compare.cost import Cost, OfflineCosts, as_values, training_cost
from viewkit.pipelines.compare.curves import mean_curves
from viewkit.pipelines.compare.plan import Cell, Control
from viewkit.pipelines.compare.plots import DIFFERENCES, plot_differences
from viewkit.pipelines.compare.summary import Evaluated, summarise_cell, summarise_difference
from viewkit.pipelines.compare.verdict import Rules
from viewkit.pipelines.engine.config import identity_values
from viewkit.pipelines.engine.contract import FitStage, Run
from viewkit.pipelines.models.predictions import PREDICTIONS, load_predictions
from viewkit.pipelines.training.metrics import METRICS, read_metrics
from viewkit.shards.codecs import decode_json, encode_json
from viewkit.shards.dataset import Dataset
from viewkit.shards.files import read_file, write_atomic

RESULT, COSTS = "compare.json", "costs.json"


class CompareStage(FitStage[CompareConfig]):
    """cells: what is compared, the reference of every length among them. controls: the cells that pay for others.

    folders: of the evaluations in every run's folder. notes: what a reader should know of the arms, one sentence each.
    """

    name: ClassVar[str] = "compare"
    version: ClassVar[int] = 2
    logs: ClassVar[tuple[str, ...]] = (COSTS,)  # it holds times
    replaces: ClassVar[bool] = True
    """A comparison of fewer arms or seeds is replaced: all it says is in the runs."""
    shown_as: ClassVar[str] = "compare/NAME"
    holds: ClassVar[Mapping[str, str]] = {
        "compare.json": "rules; values of every arm over seeds; of pairs of arms the paired differences in points, "
        "tests and verdicts; learning curves",
        "costs.json": "seconds, image passes and operations of every arm: of a training, of every stage before, in all",
        "differences.png": "paired differences with their intervals",
    }

    def __init__(
        self,
        name: str,
        reference: str,
        cells: Sequence[Cell],
        controls: Sequence[Control] = (),
        folders: Sequence[str] = ("eval",),
        notes: Sequence[str] = (),
    ) -> None:
        check_name(name)
        self.comparison, self.reference = name, reference
        self.cells, self.controls, self.folders, self.notes = cells, controls, folders, notes

    @property
    def writes(self) -> str:
        return f"compare/{self.comparison}"

    @property
    def all_cells(self) -> list[Cell]:
        """The cells, then the controls, each once."""
        return list(dict.fromkeys([*self.cells, *(each.cell for each in self.controls)]))

    def runs(self, cell: Cell, config: CompareConfig) -> list[str]:
        return [f"runs/{cell.run(self.comparison, seed)}" for seed in range(config.seeds)]

    def reads(self, config: CompareConfig) -> tuple[str, ...]:
        runs = [run for cell in self.all_cells for run in self.runs(cell, config)]
        return tuple(name for run in runs for name in (run, *(f"{run}/{folder}" for folder in self.folders)))

    def settings(self, config: CompareConfig) -> dict[str, Any]:
        return {
            **identity_values(config),
            "arms": [cell.label for cell in self.cells],
            "paid_for": [f"{each.of.label} by {each.cell.label}" for each in self.controls],
            "notes": list(self.notes),
        }

    def fit(self, config: CompareConfig, run: Run) -> Mapping[str, Any]:
        rules = Rules(matters=config.matters)
        measured = {
            cell: [self.evaluated(run.dataset, name) for name in self.runs(cell, config)] for cell in self.all_cells
        }
        references = {cell.steps: cell for cell in self.cells if cell.arm == self.reference}
        differences = [
            summarise_difference(cell, references[cell.steps], measured, rules)
            for cell in self.cells
            if cell.arm != self.reference
        ]
        paid = [summarise_difference(each.of, each.cell, measured, rules, of_cost=True) for each in self.controls]
        first = self.runs(self.cells[0], config)[0]
        result = {
            "name": self.comparison,
            "reference": self.reference,
            "seeds": config.seeds,
            "rules": rules.sentences(),
            "matters": config.matters,
            "notes": list(self.notes),
            "data": self._evaluation(run.dataset, first, self.folders[0])["data"],
            "baselines": self._baselines(run.dataset, config),
            "arms": [
                {**summarise_cell(cell, own), "runs": self.runs(cell, config)} for cell, own in measured.items()
            ],
            "differences": [*differences, *paid],
            "controls": [{"of": each.of.label, "control": each.cell.label, "ratio": each.ratio}
                         for each in self.controls],
            "curves": {cell.label: self._curves(run.dataset, cell, config) for cell in self.all_cells},
        }  # fmt: skip
        write_atomic(run.folder / RESULT, encode_json(result))
        write_atomic(run.folder / COSTS, encode_json(self.costs(run.dataset, config, run.device)))
        plot_differences(result, run.folder / DIFFERENCES)
        return {
            f"{each['label']} {probe}{' paid for' if each['of_cost'] else ''}": found["said"]
            for each in result["differences"]
            for probe, found in each["probes"].items()
        }

    def evaluated(self, dataset: Dataset, run: str) -> Evaluated:
        """Every probe of every evaluation of a run; those outside of ``eval`` are named with their folder."""
        top1, correct = {}, {}
        for folder in self.folders:
            found = dataset.artifact(f"{run}/{folder}")
            answers = load_predictions(found.path(PREDICTIONS))
            for probe in self._evaluation(dataset, run, folder)["probes"]["encoder"]:
                name = probe["name"] if folder == "eval" else f"{probe['name']} ({folder})"
                top1[name] = 100 * float(probe["top1"])
                correct[name] = answers.correct(probe["name"])
        return Evaluated(top1, correct)

    def _evaluation(self, dataset: Dataset, run: str, folder: str) -> dict[str, Any]:
        content: dict[str, Any] = decode_json(read_file(dataset.artifact(f"{run}/{folder}").path("eval.json")))
        return content

    def _baselines(self, dataset: Dataset, config: CompareConfig) -> dict[str, dict[str, float]]:
        """Baseline -> probe -> accuracy in percent, as the first evaluation measured them that did."""
        for run in [run for cell in self.cells for run in self.runs(cell, config)]:
            probes = self._evaluation(dataset, run, self.folders[0])["probes"]
            if len(probes) > 1:
                return {
                    name: {each["name"]: 100 * each["top1"] for each in found}
                    for name, found in probes.items()
                    if name != "encoder"
                }
        return {}

    def costs(self, dataset: Dataset, config: CompareConfig, device: str) -> dict[str, Any]:
        """Label of a cell -> its costs; ratio: of all its operations to those of the reference at the same length."""
        offline = OfflineCosts(dataset, device)
        costs = {cell: cost_of(dataset, self.runs(cell, config), offline) for cell in self.all_cells}
        totals = {cell: sum(stages.values(), training) for cell, (training, stages) in costs.items()}
        paid = {each.cell: each.of for each in self.controls if each.cell.control}
        found = {}
        for cell, (training, stages) in costs.items():
            reference = totals[Cell(self.reference, paid.get(cell, cell).steps)]
            known = reference.flops and not (reference.uncounted or totals[cell].uncounted)
            found[cell.label] = {
                "training": as_values(training),
                "offline": {name: as_values(cost) for name, cost in stages.items()},
                "total": as_values(totals[cell]),
                "ratio": totals[cell].flops / reference.flops if known else None,
            }
        return found

    def _curves(self, dataset: Dataset, cell: Cell, config: CompareConfig) -> dict[str, Any]:
        return mean_curves([read_metrics(dataset.artifact(run).path(METRICS)) for run in self.runs(cell, config)])


def cost_of(dataset: Dataset, runs: Sequence[str], offline: OfflineCosts) -> tuple[Cost, dict[str, Cost]]:
    """Of one training, the mean over its seeds, and of every offline stage that the runs read."""
    trainings = [training_cost(dataset.artifact(run)) for run in runs]
    total = sum(trainings[1:], trainings[0])
    seconds = None if total.seconds is None else total.seconds / len(runs)
    mean = Cost(
        seconds=seconds, passes=total.passes / len(runs), flops=total.flops / len(runs), uncounted=total.uncounted
    )
    return mean, offline.of_run(runs[0].removeprefix("runs/"))

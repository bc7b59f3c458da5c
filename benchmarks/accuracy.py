"""Does it help? Equal training with every way of making pairs, on a labelled dataset, within a given time.

    python benchmarks/accuracy.py TRAIN TEST --minutes 20 --seeds 2 --out table.md

TRAIN and TEST are packed datasets (CIFAR-10: `viewkit pack cifar10/train.tar TRAIN`). What every way needs beforehand
(estimator, histograms, scored pairs, generated views) is made first, outside the time budget, and kept. Then a step of
each way is timed, and every run gets the same number of steps, as many as the budget allows. `dsf` renders as many
views in a step as the others: half the images, four views of each. One policy holds for all: the estimator, its
histograms, the scored pairs and the pairs that are sampled anew. The table says budget, seeds, mean, standard
deviation and, against the baseline, the mean difference of runs of the same seed.
"""

import argparse
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from viewkit.cli.progress import PlainProgress
from viewkit.pipelines.engine.config import make_config
from viewkit.pipelines.engine.execution import Devices, Execution
from viewkit.pipelines.engine.run import plan_stage, run_stage
from viewkit.pipelines.estimator.config import EstimatorConfig
from viewkit.pipelines.estimator.stage import EstimatorStage
from viewkit.pipelines.evaluate.config import EvaluateConfig
from viewkit.pipelines.evaluate.stage import EvaluateStage
from viewkit.pipelines.experiments.experiment import pretrain_options
from viewkit.pipelines.foreground.stage import ForegroundStage
from viewkit.pipelines.generate.config import GenerateConfig
from viewkit.pipelines.generate.stage import GenerateStage
from viewkit.pipelines.histograms.config import HistogramsConfig
from viewkit.pipelines.histograms.stage import HistogramsStage
from viewkit.pipelines.pretrain.config import PretrainConfig, resolve
from viewkit.pipelines.pretrain.stage import PretrainStage
from viewkit.pipelines.score.config import ScoreConfig
from viewkit.pipelines.score.stage import ScoreStage
from viewkit.shards.dataset import Dataset

BASELINE = "random"
WAYS: dict[str, dict[str, Any]] = {
    BASELINE: {},
    "jointcrop": {"joint_area": 0.0},
    "hard": {"select": "hard", "views": 4},
    "stored": {"select": "stored"},
    "vs2fi": {"select": "vs2fi"},
    "retrieval": {"alpha": 1.0},
    "dsf": {"views_per_side": 2, "multi_view": "dsf"},
}
"""What each way changes. `stored` and `vs2fi` read the same scored pairs, one without and one with the filters: what
the filters add is the difference of these two. `retrieval` reads the generated views."""


@dataclass(frozen=True)
class Plan:
    """What all runs share: the options of a preset, and what the command line changes of them."""

    preset: dict[str, Any]
    batch_size: int
    filter_share: float

    def config(self, way: str, steps: int, seed: int) -> PretrainConfig:
        options = {**self.preset, **WAYS[way], "batch_size": self.batch_size // (2 if way == "dsf" else 1)}
        if way == "vs2fi":
            options["filter_share"] = self.filter_share
        options |= {"steps": steps, "warmup_epochs": 0.0, "seed": seed}
        return make_config(PretrainConfig, options, "accuracy.py")


def policy_of(preset: dict[str, Any]) -> str:
    """The policy of every run, which stored pairs are sampled by, too."""
    return resolve(make_config(PretrainConfig, preset, "accuracy.py")).policy


def prepare(train: Dataset, policy: str, devices: Devices, execution: Execution, options: argparse.Namespace) -> None:
    """Everything that some way reads; what is there already is checked and kept."""
    progress = PlainProgress()
    estimator = EstimatorConfig(preset=options.estimator, steps=options.estimator_steps, policy=policy)
    run_stage(EstimatorStage(), estimator, train, devices, progress)
    generate = GenerateConfig(sign=options.sign)
    run_stage(ForegroundStage(), generate.foreground(), train, devices, progress)
    run_stage(GenerateStage(), generate, train, execution, progress)
    run_stage(HistogramsStage(), HistogramsConfig(policy=policy), train, devices, progress)
    run_stage(ScoreStage(), ScoreConfig(rounds=options.score_rounds, policy=policy), train, execution, progress)


def accuracies(
    train: Dataset, test: str, name: str, config: PretrainConfig, probes: str, devices: Devices
) -> dict[str, float]:
    """Top-1 of every probe after one run."""
    run_stage(PretrainStage(name), config, train, devices, PlainProgress())
    evaluation = EvaluateConfig(k="20", probes=probes, baselines=False)
    numbers = run_stage(EvaluateStage(name, test), evaluation, train, devices, PlainProgress()).numbers
    return {probe.removeprefix("encoder "): value for probe, value in numbers.items() if isinstance(value, float)}


def table(found: dict[str, list[dict[str, float]]]) -> str:
    """Markdown: a row for every way; percent."""
    probes = list(found[BASELINE][0])
    lines = ["| pairs | " + " | ".join(f"{probe} | difference" for probe in probes) + " |"]
    lines.append("|---|" + "---|" * (2 * len(probes)))
    for way, runs in found.items():
        cells = []
        for probe in probes:
            values = [100 * run[probe] for run in runs]
            deltas = [100 * (run[probe] - base[probe]) for run, base in zip(runs, found[BASELINE], strict=True)]
            spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
            doubt = f" ± {statistics.stdev(deltas):.1f}" if len(deltas) > 1 else ""
            cells.append(f"{statistics.mean(values):.1f}{spread}")
            cells.append("" if way == BASELINE else f"{statistics.mean(deltas):+.1f}{doubt}")
        lines.append(f"| {way} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("train", help="packed, labelled dataset to pretrain on")
    parser.add_argument("test", help="packed, labelled dataset to test on")
    parser.add_argument("--minutes", type=float, default=20.0, help="time for all pretraining (default 20)")
    parser.add_argument("--steps", type=int, default=None, help="steps of every run, instead of a time")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--ways", default=",".join(WAYS), help=f"any of {','.join(WAYS)}; {BASELINE} is always run")
    parser.add_argument("--preset", default="dsf-table1-cifar10/baseline", help="options all runs share")
    parser.add_argument("--arch", default=None, help="instead of the preset's")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--precision", default="fp32", choices=("fp32", "bf16"))
    parser.add_argument("--probes", default="knn,linear", help="of viewkit evaluate")
    parser.add_argument("--filter-share", type=float, default=0.08, help="of the pairs that vs2fi's k_SC removes")
    parser.add_argument("--estimator", default="pico-32", help="preset of the estimator")
    parser.add_argument("--estimator-steps", type=int, default=None)
    parser.add_argument("--sign", default="auto", help="of the foreground component, see docs/generators.md")
    parser.add_argument("--score-rounds", type=int, default=4)
    parser.add_argument("--out", type=Path, default=None, help="write the table here too")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> None:
    options = parse(arguments)
    train, devices, execution = Dataset(options.train), Devices(), Execution()
    ways = list(dict.fromkeys([BASELINE, *options.ways.split(",")]))
    left_out = ("epochs", "crop")  # the stored pairs' crops are exact, so all are
    shared = {name: value for name, value in pretrain_options(options.preset).items() if name not in left_out}
    shared |= {"precision": options.precision} | ({"arch": options.arch} if options.arch else {})
    prepare(train, policy_of(shared), devices, execution, options)
    plan = Plan(shared, options.batch_size, options.filter_share)
    step_s = {
        way: plan_stage(PretrainStage("timing"), plan.config(way, 100, 0), train, devices)["step_s"] for way in ways
    }
    steps = options.steps or int(options.minutes * 60 / (options.seeds * sum(step_s.values())))
    if steps < 20:
        sys.exit(
            f"{options.minutes} minutes are {steps} steps for {len(ways)} ways and {options.seeds} seeds; give more"
        )
    found: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
    for seed in range(options.seeds):
        for way in ways:
            config = plan.config(way, steps, seed)
            found[way].append(accuracies(train, options.test, f"{way}-{steps}-{seed}", config, options.probes, devices))
    where = torch.cuda.get_device_name() if torch.cuda.is_available() else f"CPU, {torch.get_num_threads()} threads"
    text = (
        f"{train.column('images').num_rows} images, preset {options.preset}, {shared['arch']}, batch "
        f"{options.batch_size}, {steps} steps a run, {options.seeds} seeds, {options.precision}, {where}; top-1 in "
        f"percent, ± standard deviation over seeds\n\n{table(found)}\n\n"
        "Step times against the baseline: "
        + ", ".join(f"{way} {step_s[way] / step_s[BASELINE]:.2f}" for way in ways)
        + "\n"
    )
    print(text)
    if options.out is not None:
        options.out.write_text(text)


if __name__ == "__main__":
    main(sys.argv[1:])

"""The studies of docs/evidence.md: runs them, keeps what they found, and writes the page from that.

    python benchmarks/evidence.py --out work [--only evidence-rounds,...] [--gpu] [--minutes 10]
    python benchmarks/evidence.py --page

The first command runs one experiment after the other and can be stopped and repeated; with --minutes it stops itself.
Every finished study leaves docs/evidence/NAME.json. The second writes the page from these files alone.
"""

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from viewkit.pipelines.experiments.experiment import load_experiment

DOCS = Path(__file__).parents[1] / "docs"
KEPT = "evidence"
MOSAICS = ("demo:train", "demo:test")


@dataclass(frozen=True)
class Study:
    """name: of its file in docs/evidence. dataset: folder below --out; studies of equal pairs share one. images: the
    source and the test source, or the options that give them. asks: the question. experiment: unless it is called like
    the study. changes: for ``--set``."""

    name: str
    dataset: str
    images: tuple[str, str]
    asks: str
    experiment: str = ""
    changes: tuple[str, ...] = ()
    on_gpu: bool = False

    @property
    def runs(self) -> str:
        return self.experiment or self.name

    @property
    def comparison(self) -> str:
        return self.runs.replace("-", "_")


IMAGENETTE = ("imagenette", "imagenette_test")
CPU_STUDIES = (
    Study("evidence-mosaics-2x2", "mosaics-2x2", MOSAICS, "Which of the stored pairs should be trained on?"),
    Study("evidence-mosaics-long", "mosaics-2x2", MOSAICS, "Does the answer hold in longer trainings?"),
    Study("evidence-mosaics-1x2", "mosaics-1x2", MOSAICS, "And with two photographs an image?"),
    Study("evidence-rounds", "rounds", MOSAICS, "What does it cost to store few rounds of pairs?"),
    Study("evidence-estimator-0", "estimator-0", MOSAICS, "Is an untrained estimator of any use?"),
    Study("evidence-estimator-100", "estimator-100", MOSAICS, "And one of 100 steps?"),
    Study("evidence-estimator-1600", "estimator-1600", MOSAICS, "And one of 1,600 steps?"),
    Study("evidence-cifar10", "cifar10", ("cifar10", "cifar10_test"), "Ten ways on images of one object each."),
    Study("evidence-imagenette-64", "imagenette", IMAGENETTE, "Ten ways on photographs."),
)


def gpu_studies() -> tuple[Study, ...]:
    """Mosaics and Imagenette at 64 and 96 px with a ResNet-18 and a ViT-S, 200 epochs of Imagenette's 9,469 images."""
    found = []
    for side_px in (64, 96):
        for arch, optimiser, lr, weight_decay in (
            ("resnet18", "sgd", 0.06, 1e-4),
            ("vit_small_patch8", "adamw", 5e-4, 0.1),
        ):
            network = (f"pretrain.arch={arch}", f"pretrain.side_px={side_px}", "pretrain.framework=moco_v3",
                       f"pretrain.optimiser={optimiser}", f"pretrain.lr={lr}", f"pretrain.weight_decay={weight_decay}",
                       "estimator.preset=small-96", "estimator.arch=vit_small_patch8", "estimator.steps=6000",
                       f"estimator.side_px={side_px}", "estimator.batch_size=256", "estimator.lr=0.0005")  # fmt: skip
            what = f"{side_px} px, {arch}"
            found += [
                Study(f"gpu-mosaics-{side_px}-{arch}", f"gpu-mosaics-{side_px}-{arch}", IMAGENETTE,
                      f"Which stored pair? Mosaics of Imagenette, {what}.", "evidence-mosaics-2x2",
                      (*network, "pack.part_px=128", "pack.mosaics=9469", "pack.labels=folders",
                       "pretrain.batch_size=256", "compare.lengths=[1850, 7400]"), True),
                Study(f"gpu-imagenette-{side_px}-{arch}", f"gpu-imagenette-{side_px}-{arch}", IMAGENETTE,
                      f"Ten ways on Imagenette, {what}.", "evidence-imagenette-64",
                      (*network, "pretrain.batch_size=256", "compare.lengths=[7400]"), True),
            ]  # fmt: skip
    return tuple(found)


STUDIES = (*CPU_STUDIES, *gpu_studies())
FALSE = "no_shared_things"
AUDITED = {"al": "alignment_level"}
"""Arm -> the audit's name of its selection, where they differ. The audit's SC filters at the default share alone."""
AREAS = {"roc_area": "all pairs", "roc_area_apart": "pairs that do not overlap"}


def command_of(study: Study, sources: tuple[str, str], out: Path, changes: Sequence[str] = ()) -> list[str]:
    source, test = sources
    changes = [word for change in (*study.changes, *changes) for word in ("--set", change)]
    return ["run", study.runs, source, str(out / study.dataset), "--test", test, *changes]


def run(command: Sequence[str], until: float | None) -> int | None:
    """Exit code of a study; None where its time was over, at `until`, in seconds of `time.monotonic`."""
    program = [sys.executable, "-m", "viewkit.cli", *command]
    with subprocess.Popen(program, env={"OMP_NUM_THREADS": "1", **os.environ}) as process:
        try:
            return process.wait(None if until is None else max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGTERM)
            return 0 if process.wait() == 0 else None


def keep(study: Study, out: Path, folder: Path, changes: Sequence[str] = ()) -> Path:
    """Write what the page needs of a finished study. changes: made to it beside its own."""
    dataset = out / study.dataset
    own = dataset / "compare" / study.comparison
    compared = json.loads((own / "compare.json").read_text())
    compared.pop("curves")
    audit = dataset / "audit" / "audit.json"
    found = {
        "study": study.name,
        "asks": study.asks,
        "command": "viewkit " + " ".join(command_of(study, study.images, Path(), changes)),
        "commit": commit(),
        "machine": machine(study),
        "versions": {name: version(name) for name in ("torch", "numpy", "timm")},
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "compare": compared,
        "costs": json.loads((own / "costs.json").read_text()),
        "audit": audited(json.loads(audit.read_text())) if audit.is_file() else None,
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{study.name}.json"
    path.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    return path


def machine(study: Study) -> str:
    if study.on_gpu and torch.cuda.is_available():
        return str(torch.cuda.get_device_name())
    return f"{platform.machine()}, {os.cpu_count()} cores"


def commit() -> str:
    """Of the code that is run; empty outside of a checkout."""
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=DOCS, capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def audited(audit: Mapping[str, Any]) -> dict[str, Any]:
    """Shares of false positives and the rules' ROC areas, where objects are known."""
    questions = {each["name"]: each for each in audit["ground_truth"]}
    return {
        "false": {each["name"]: {name: each["bad"][FALSE][name] for name in ("share", "error")}
                  for each in audit["selections"] if FALSE in each["bad"]},
        "rules": {each["name"]: {area: [each[area], each[area.replace("area", "error")]] for area in AREAS}
                  for each in questions[FALSE]["rules"]},
    }  # fmt: skip


def page(folder: Path) -> str:
    """docs/evidence.md, from the files of `keep`."""
    found = {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}
    lines = [INTRODUCTION]
    for study in STUDIES:
        if study.on_gpu and study.name not in found:
            continue
        title = load_experiment(study.runs).title
        lines += [f"## {title}" + (", on a GPU" if study.on_gpu else ""), "", study.asks, ""]
        lines += study_lines(found[study.name]) if study.name in found else ["Not run yet.", ""]
    return "\n".join(lines).rstrip() + "\n"


INTRODUCTION = """\
<!-- Generated by `python benchmarks/evidence.py --page` from docs/evidence/*.json; change it there. -->

# Does it help?

Every table below is one experiment of `pipelines/experiments/files`, run by the command above it, and is published
whatever it says. All arms of a table have the same images, steps, network and view specification; seed i gives all
arms the same first weights and the same order of images. Differences are paired over seeds, in points, with their 95
% t interval; the verdicts follow the rules of [compare](compare.md), fixed beforehand. A placebo takes the same
selection with what is known of a row's pairs permuted among them; the oracle knows the truth. *Cost* is all
operations, those of the offline stages included, over the reference's; *paid for* compares with the reference trained
longer by that cost.

The studies go on where they were stopped: `python benchmarks/evidence.py --out work`.
"""


def study_lines(found: Mapping[str, Any]) -> list[str]:
    compared, audit = found["compare"], found["audit"]
    data = compared["data"]
    probes = list(compared["arms"][0]["probes"])
    lines = [
        f"`{found['command']}`",
        "",
        f"{compared['seeds']} seeds, {data['num_test']} test images of {data['num_classes']} classes; commit "
        f"{found['commit'] or 'unknown'}, {found['machine']}, torch {found['versions']['torch']}, {found['date']}.",
        "",
    ]
    by_label = {(each["label"], each["of_cost"]): each for each in compared["differences"]}
    for steps in dict.fromkeys(each["steps"] for each in compared["arms"] if not each["control"]):
        columns = [
            "arm",
            "false positives",
            *(f"{probe}, difference" for probe in probes),
            "verdict",
            "cost",
            "paid for",
        ]
        rows = [arm_row(each, by_label, found["costs"], audit, probes)
                for each in compared["arms"] if each["steps"] == steps and not each["control"]]  # fmt: skip
        lines += [f"{steps} steps, against `{compared['reference']}`:", "", *markdown(columns, rows), ""]
    if audit is not None:
        lines += rule_lines(audit["rules"])
    return lines


def arm_row(
    arm: Mapping[str, Any],
    differences: Mapping[tuple[str, bool], Mapping[str, Any]],
    costs: Mapping[str, Any],
    audit: Mapping[str, Any] | None,
    probes: Sequence[str],
) -> list[str]:
    found, paid = differences.get((arm["label"], False)), differences.get((arm["label"], True))
    share = None if audit is None else audit["false"].get(AUDITED.get(arm["arm"], arm["arm"]))
    ratio = costs[arm["label"]]["ratio"]
    return [
        f"`{arm['arm']}`",
        "" if share is None else f"{100 * share['share']:.1f} ± {100 * share['error']:.1f} %",
        *(accuracy(arm["probes"][probe], None if found is None else found["probes"][probe]) for probe in probes),
        "" if found is None else verdicts(found),
        "" if ratio is None else f"{ratio:.2f}",
        "" if paid is None else verdicts(paid),
    ]


def accuracy(own: Mapping[str, Any], found: Mapping[str, Any] | None) -> str:
    shown = f"{own['mean']:.1f}" + ("" if own["sd"] is None else f" ± {own['sd']:.1f}")
    if found is None:
        return shown
    return f"{shown}, **{found['mean']:+.1f}** [{found['low']:+.1f}, {found['high']:+.1f}]"


def verdicts(found: Mapping[str, Any]) -> str:
    """One word where all probes agree."""
    said = {probe: each["said"] for probe, each in found["probes"].items()}
    if len(set(said.values())) == 1:
        return next(iter(said.values()))
    return "; ".join(f"{probe}: {text}" for probe, text in said.items())


def rule_lines(rules: Mapping[str, Mapping[str, Sequence[float | None]]]) -> list[str]:
    rows = [[name.replace("_", " "), *(shown_area(*own[area]) for area in AREAS)] for name, own in rules.items()]
    return [*markdown(["how well it finds false positives (ROC area)", *AREAS.values()], rows), ""]


def shown_area(value: float | None, error: float | None) -> str:
    return "" if value is None or error is None else f"{value:.3f} ± {error:.3f}"


def markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (columns, ["---"] * len(columns), *rows)]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("--page", action="store_true", help="write docs/evidence.md from the files that are there")
    parser.add_argument("--docs", type=Path, default=DOCS, help="folder of evidence.md and evidence/")
    parser.add_argument("--out", type=Path, help="folder of the datasets that the studies make")
    parser.add_argument("--only", default=None, help="studies, separated by commas (default: all with images)")
    parser.add_argument("--minutes", type=float, default=None, help="stop after this time; the same command goes on")
    parser.add_argument("--gpu", action="store_true", help="the studies that need one, in place of the others")
    parser.add_argument("--set", action="append", default=[], help="as in viewkit run; for trials")
    for name in ("cifar10", "imagenette"):
        parser.add_argument(f"--{name}", help=f"{name}'s training images: a source of `viewkit pack`")
        parser.add_argument(f"--{name}-test", help=f"{name}'s test images")
    options = parser.parse_args(arguments)
    if options.set and options.docs == DOCS:
        parser.error("--set is for trials; add --docs FOLDER, so that the published page stays as it is")
    if options.out is not None:
        usual = gpu_studies() if options.gpu else CPU_STUDIES
        chosen = options.only.split(",") if options.only else [study.name for study in usual]
        if unknown := set(chosen) - {study.name for study in STUDIES}:
            parser.error(f"--only names {', '.join(sorted(unknown))}; studies are {', '.join(s.name for s in STUDIES)}")
        until = None if options.minutes is None else time.monotonic() + 60 * options.minutes
        for study in [each for each in STUDIES if each.name in chosen]:
            given = [getattr(options, each, each) for each in study.images]
            if None in given:
                print(f"{study.name}: skipped, its images are not given (--{study.images[0]})")
                continue
            code = run(command_of(study, (given[0], given[1]), options.out, options.set), until)
            if code is None:
                print(f"{study.name}: stopped after {options.minutes:g} minutes; the same command goes on")
                return 0
            if code:
                return code
            print(f"{study.name}: {keep(study, options.out, options.docs / KEPT, options.set)}")
    if options.page or options.out is not None:
        (options.docs / "evidence.md").write_text(page(options.docs / KEPT))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""From what runs and evaluations hold to the numbers of a comparison: JSON values, and lines for people."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool

from viewkit.pipelines.compare.mcnemar import mcnemar
from viewkit.pipelines.compare.plan import Cell
from viewkit.pipelines.compare.statistics import holm, paired
from viewkit.pipelines.compare.verdict import Rules, judge, judge_cost


@dataclass(frozen=True)
class Evaluated:
    """One run's measurements. top1: probe -> accuracy in percent. correct: probe -> [r n], by repetition and image."""

    top1: Mapping[str, float]
    correct: Mapping[str, Bool[np.ndarray, "r n"]]


Measured = Mapping[Cell, Sequence[Evaluated]]
"""Cell -> its runs, in the order of seeds."""


def summarise_cell(cell: Cell, runs: Sequence[Evaluated]) -> dict[str, Any]:
    """Values of every seed, their mean and standard deviation, by probe."""
    probes = {}
    for probe in runs[0].top1:
        values = [run.top1[probe] for run in runs]
        sd = float(np.std(values, ddof=1)) if len(values) > 1 else None
        probes[probe] = {"values": values, "mean": float(np.mean(values)), "sd": sd}
    return {"arm": cell.arm, "steps": cell.steps, "label": cell.label, "control": cell.control, "probes": probes}


def summarise_difference(
    cell: Cell, against: Cell, measured: Measured, rules: Rules, *, of_cost: bool = False
) -> dict[str, Any]:
    """The paired differences of two cells, in points, with every test and the verdict, by probe.

    of_cost: `against` is the compute-matched control, which pays for the cell's cost.
    """
    ours, theirs = measured[cell], measured[against]
    probes = list(ours[0].top1)
    found = {
        probe: paired(
            [a.top1[probe] - b.top1[probe] for a, b in zip(ours, theirs, strict=True)],
            alpha=rules.alpha,
            power=rules.power,
            level=rules.alpha / len(probes),
        )
        for probe in probes
    }
    corrected = dict(zip(probes, holm([_known(each.p_t) for each in found.values()]), strict=True))
    results = {}
    for probe, each in found.items():
        verdict = judge(each, corrected[probe], rules, probes=len(probes))
        if of_cost:
            verdict = judge_cost(verdict)
        results[probe] = {
            **asdict(each),
            "differences": list(each.differences),
            "p_holm": corrected[probe],
            "verdict": verdict.word,
            "needs": verdict.needs,
            "said": str(verdict),
            **_over_images(probe, ours, theirs),
        }
    return {
        "arm": cell.arm,
        "steps": cell.steps,
        "label": cell.label,
        "against": against.label,
        "of_cost": of_cost,
        "probes": results,
    }


def _known(p: float | None) -> float:
    return 1.0 if p is None else p


def _over_images(probe: str, ours: Sequence[Evaluated], theirs: Sequence[Evaluated]) -> dict[str, Any]:
    """McNemar's test of every seed, where the answers to every image are known; of repetitions the first."""
    if probe not in ours[0].correct:
        return {"mcnemar": [], "disagreement": None, "error_over_images": None}
    tests = [mcnemar(a.correct[probe][0], b.correct[probe][0]) for a, b in zip(ours, theirs, strict=True)]
    return {
        "mcnemar": [{"gained": each.gained, "lost": each.lost, "p": each.p} for each in tests],
        "disagreement": float(np.mean([each.disagreement for each in tests])),
        "error_over_images": 100 * float(np.mean([each.error for each in tests])),
    }

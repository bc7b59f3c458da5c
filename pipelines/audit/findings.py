"""All numbers of an audit, from the stored pairs and what was measured of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64

from viewkit.pipelines.audit.config import AuditConfig
from viewkit.pipelines.audit.filtering import GAMMAS, filtered_by_round, sensitivity
from viewkit.pipelines.audit.grid import (
    Ranges,
    cell_counts,
    cell_means,
    consistency_ranges,
    level_ranges,
    rank_correlation,
)
from viewkit.pipelines.audit.measures import Measures
from viewkit.pipelines.audit.selections import compare_selections
from viewkit.pipelines.audit.truth import Question, ask, bad_pairs, groups_of
from viewkit.pipelines.pairs.column import ScoredPairs
from viewkit.pipelines.pairs.options import FILTER_SHARE
from viewkit.pipelines.pairs.rules import SHARE_OF_BLOCKS
from viewkit.pipelines.vs2fi.artifact import Histograms
from viewkit.pipelines.vs2fi.scores import rescore
from viewkit.pipelines.vs2fi.threshold import consistency_threshold

HIGH_LEVEL = {
    "classes": "Hellinger distance of the class probabilities of the classifier that was given",
    "categories": "Jaccard distance of the annotated categories that the views show",
    "features": "1 - cosine of the backbone features of '{encoder}', which is no independent judge where that is the "
    "estimator itself",
}
"""High-level distances, the best judge first. Labels tell nothing: both views are of one image."""


@dataclass(frozen=True, eq=False)
class Findings:
    """grid: name -> values of the cells [consistency, level], lowest ranges first. chosen: the best judge there is."""

    sample: ScoredPairs
    measures: Measures
    visible_share: float
    k_sc: float
    k_al: float
    gamma: float
    encoder: str
    colour_side_px: int
    consistency: Ranges
    level: Ranges
    grid: Mapping[str, Float64[np.ndarray, "4 4"]]
    correlation: Mapping[str, Mapping[str, float | None]]
    chosen: str
    sensitivity: Mapping[str, list[dict[str, float]]]
    questions: list[Question]
    answers: list[dict[str, Any]]
    selections: list[dict[str, Any]]

    def numbers(self) -> dict[str, Any]:
        """audit.json."""
        sample, measures = self.sample, self.measures
        return {
            "images": len(sample.keys),
            "rounds": sample.scores.shape[1],
            "pairs": sample.level.size,
            "num_exits": sample.num_exits,
            "k_sc": self.k_sc,
            "k_al": self.k_al,
            "gamma": self.gamma,
            "colour_side_px": self.colour_side_px,
            "highest_consistency": float(sample.consistency.max()),
            "filtered": filtered_by_round(sample.consistency, sample.level, self.k_sc, self.k_al),
            "ranges": {"consistency": list(self.consistency.labels), "level": list(self.level.labels)},
            "grid": {name: json_rows(values) for name, values in self.grid.items()},
            "high_level": {
                "chosen": self.chosen,
                "about": HIGH_LEVEL[self.chosen].format(encoder=self.encoder),
                "measured": [name for name in HIGH_LEVEL if name in self.grid],
            },
            "correlation": self.correlation,
            "sensitivity": self.sensitivity,
            "annotations": {
                "images": measures.annotated,
                "unusable": dict(sorted(measures.unusable.items())),
                "visible_share": self.visible_share,
            },
            "ground_truth": self.answers,
            "selections": self.selections,
        }


def find(
    config: AuditConfig, sample: ScoredPairs, measures: Measures, histograms: Histograms, gamma: float, encoder: str
) -> Findings:
    """Read every number off. gamma: what the column's Alignment Levels were read with."""
    k_al = SHARE_OF_BLOCKS * sample.num_exits if config.k_al is None else config.k_al
    k_sc = config.k_sc
    if k_sc is None:
        share = FILTER_SHARE if config.filter_share is None else config.filter_share
        k_sc, _ = consistency_threshold(histograms, share)
    consistency, level = sample.consistency.reshape(-1), sample.level.reshape(-1)
    ranges, levels = consistency_ranges(), level_ranges(sample.num_exits, k_al)
    across, up = ranges.place(consistency), levels.place(level)
    distances = high_level_distances(measures)
    low_and_high = {"colour": measures.colour.reshape(-1), **distances}
    questions = ask(
        sample,
        measures,
        k_sc=k_sc,
        k_al=k_al,
        duplicate_iou=config.duplicate_iou,
        duplicate_colour=config.duplicate_colour,
    )
    return Findings(
        sample=sample,
        measures=measures,
        visible_share=config.visible_share,
        k_sc=k_sc,
        k_al=k_al,
        gamma=gamma,
        encoder=encoder,
        colour_side_px=config.side_px or sample.side_px,
        consistency=ranges,
        level=levels,
        grid={
            "count": cell_counts(across, up).astype(np.float64),
            **{name: cell_means(values, across, up) for name, values in low_and_high.items()},
        },
        correlation={
            name: {
                "consistency": rank_correlation(consistency, values),
                "level": rank_correlation(level, values),
            }
            for name, values in low_and_high.items()
        },
        chosen=next(name for name in HIGH_LEVEL if name in distances),
        sensitivity=thresholds(sample, histograms, gamma, k_sc, k_al),
        questions=questions,
        answers=[question.answer() for question in questions],
        selections=compare_selections(
            sample,
            measures,
            bad_pairs(measures, duplicate_iou=config.duplicate_iou, duplicate_colour=config.duplicate_colour),
            groups_of(len(sample.keys)),
            k_sc=k_sc,
            k_al=k_al,
        ),
    )


def thresholds(
    sample: ScoredPairs, histograms: Histograms, gamma: float, k_sc: float, k_al: float
) -> dict[str, list[dict[str, float]]]:
    """Sensitivity to k_SC, k_AL and gamma; for gamma, levels are read off the stored similarities again."""
    pairs = sample.level.shape[2]
    by_gamma = [
        (value, rescore(sample.similarities, histograms, value)[1].reshape(-1, pairs))
        for value in sorted({*GAMMAS, gamma})
    ]
    rows = sample.consistency.reshape(-1, pairs), sample.level.reshape(-1, pairs)
    return sensitivity(*rows, by_gamma, num_exits=sample.num_exits, k_sc=k_sc, k_al=k_al)


def high_level_distances(measures: Measures) -> dict[str, np.ndarray]:
    """Name -> distance of every pair, flattened; of those that were measured."""
    found: dict[str, np.ndarray] = {}
    if measures.classes is not None:
        found["classes"] = measures.classes.reshape(-1)
    if measures.annotated:
        found["categories"] = measures.objects["categories"].reshape(-1)
    return {**found, "features": 1 - measures.features.reshape(-1)}


def json_rows(values: Float64[np.ndarray, "4 4"]) -> list[list[float | None]]:
    """None for a cell without a number."""
    return [[None if np.isnan(value) else float(value) for value in row] for row in values]

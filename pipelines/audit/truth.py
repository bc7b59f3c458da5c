"""Known facts about pairs, and how well each rule finds the pairs they are true of."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Float64, Int64

from viewkit.pipelines.audit.measures import Measures
from viewkit.pipelines.audit.ranking import flag_highest, roc_area, roc_error
from viewkit.pipelines.pairs.column import ScoredPairs
from viewkit.pipelines.pairs.objects import SETS
from viewkit.pipelines.pairs.select import overlapping_pairs

DUPLICATES = "near_duplicate"
FALSE_POSITIVES = "no_shared_things"
GROUPS = 20
"""Of images, for the standard errors."""


@dataclass(frozen=True, eq=False)
class Question:
    """Which pairs are bad, and the scores that should tell: higher, more likely bad.

    group: of the image that a pair is from. flagged: pairs that the indicator, the first of the rules, filters at its
    own threshold. apart: pairs whose crops share no area, among which the question is asked again; None where the bad
    pairs overlap by definition.
    """

    name: str
    about: str
    truth: Bool[np.ndarray, " m"]
    group: Int64[np.ndarray, " m"]
    rules: Mapping[str, Float[np.ndarray, " m"]]
    flagged: int
    apart: Bool[np.ndarray, " m"] | None = None

    def answer(self) -> dict[str, Any]:
        """Every rule's ROC area, also among pairs that are `apart`; its precision and recall where it flags as many
        pairs as the indicator does.

        `found`: the share of the bad pairs among as many flagged ones as there are bad ones, whatever the threshold.
        """
        true = int(self.truth.sum())
        results = []
        for name, score in self.rules.items():
            precision, recall = flag_highest(score, self.truth, self.flagged)
            _, found = flag_highest(score, self.truth, true)
            results.append(
                {
                    "name": name,
                    "roc_area": roc_area(score, self.truth),
                    "roc_error": roc_error(score, self.truth, self.group),
                    "precision": precision,
                    "recall": recall,
                    "found": found,
                    **self._area_apart(score),
                }
            )
        return {
            "name": self.name,
            "about": self.about,
            "pairs": len(self.truth),
            "true": true,
            "flagged": self.flagged,
            "apart": None if self.apart is None else int(self.apart.sum()),
            "true_apart": None if self.apart is None else int(self.truth[self.apart].sum()),
            "rules": results,
        }

    def _area_apart(self, score: Float[np.ndarray, " m"]) -> dict[str, float | None]:
        if self.apart is None:
            return {"roc_area_apart": None, "roc_error_apart": None}
        score, truth, group = score[self.apart], self.truth[self.apart], self.group[self.apart]
        return {"roc_area_apart": roc_area(score, truth), "roc_error_apart": roc_error(score, truth, group)}


def ask(
    sample: ScoredPairs, measures: Measures, *, k_sc: float, k_al: float, duplicate_iou: float, duplicate_colour: float
) -> list[Question]:
    """Every question that the data can answer: one a set of objects that pairs are judged on, and near-duplicates."""
    questions = []
    groups = np.broadcast_to(groups_of(len(sample.keys))[:, None, None], sample.level.shape)
    similarity = sample.similarities[..., 0]
    for name, about in SETS.items():
        known = ~np.isnan(measures.objects[name])
        if known.any():
            rules = _rules(sample, measures, known)
            apart = ~overlapping_pairs(measures.iou[known])
            rules["overlap_then_similarity"] = overlap_first(apart, similarity[known])
            questions.append(
                Question(
                    f"no_shared_{name}",
                    f"the two views share none of: {about}; pairs that show none at all are left out",
                    measures.objects[name][known] == 1,
                    groups[known],
                    {
                        "semantic_consistency": -sample.consistency[known],
                        "alignment_level": sample.level[known],
                        **{key: -each for key, each in rules.items()},
                    },
                    int((sample.consistency[known] < k_sc).sum()),
                    apart,
                )
            )
    known = ~np.isnan(measures.iou)
    if known.any():
        alike = (measures.iou[known] >= duplicate_iou) & (measures.colour[known] <= duplicate_colour)
        rules = _rules(sample, measures, known)
        rules["first_exit_similarity"] = sample.similarities[known][:, 1]
        questions.append(
            Question(
                DUPLICATES,
                f"crops with an intersection over union of {duplicate_iou:g} or more and colour histograms at most "
                f"{duplicate_colour:g} apart; crop overlap and colour distance are parts of this rule, so they know "
                "half of the answer",
                alike,
                groups[known],
                {"alignment_level": -sample.level[known], "semantic_consistency": sample.consistency[known], **rules},
                int((sample.level[known] < k_al).sum()),
            )
        )
    return questions


def bad_pairs(
    measures: Measures, *, duplicate_iou: float, duplicate_colour: float
) -> dict[str, Float64[np.ndarray, "n r c"]]:
    """Kind -> 1 for bad pairs, 0 for others, NaN where it is not known: pairs without a shared countable object, where
    there are annotations, and near-duplicates."""
    things = measures.objects["things"]
    alike = (measures.iou >= duplicate_iou) & (measures.colour <= duplicate_colour)
    found = {} if np.isnan(things).all() else {FALSE_POSITIVES: np.where(np.isnan(things), np.nan, things == 1)}
    return {**found, DUPLICATES: np.where(np.isnan(measures.iou), np.nan, alike)}


def groups_of(num_images: int) -> Int64[np.ndarray, " n"]:
    """The group of every image, for standard errors."""
    return np.arange(num_images) % GROUPS


def overlap_first(apart: Bool[np.ndarray, " m"], similarity: Float[np.ndarray, " m"]) -> Float64[np.ndarray, " m"]:
    """Higher, more alike: pairs that overlap before all others, and among both by a cosine in [-1, 1]."""
    return np.where(apart, 0.0, 3.0) + similarity


def _rules(sample: ScoredPairs, measures: Measures, known: Bool[np.ndarray, "n r c"]) -> dict[str, np.ndarray]:
    """How alike the two views are by other means; higher, more alike."""
    rules = {
        "crop_overlap": measures.iou[known],
        "colour_likeness": -measures.colour[known],
        "feature_cosine": measures.features[known],
        "head_similarity": sample.similarities[known][:, 0],
    }
    if measures.classes is not None:
        rules["class_likeness"] = -measures.classes[known]
    return rules

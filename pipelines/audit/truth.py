"""Known facts about pairs, and how well each rule finds the pairs they are true of."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int64

from viewkit.pipelines.audit.measures import Measures
from viewkit.pipelines.audit.ranking import flag_highest, roc_area, roc_error
from viewkit.pipelines.pairs.column import ScoredPairs
from viewkit.pipelines.pairs.objects import SETS

DUPLICATES = "near_duplicate"
GROUPS = 20
"""Of images, for the standard errors of the ROC areas."""


@dataclass(frozen=True, eq=False)
class Question:
    """Which pairs are bad, and the scores that should tell: higher, more likely bad.

    group: of the image that a pair is from. flagged: pairs that the indicator, the first of the rules, filters at its
    own threshold.
    """

    name: str
    about: str
    truth: Bool[np.ndarray, " m"]
    group: Int64[np.ndarray, " m"]
    rules: Mapping[str, Float[np.ndarray, " m"]]
    flagged: int

    def answer(self) -> dict[str, Any]:
        """Every rule's ROC area; its precision and recall where it flags as many pairs as the indicator does.

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
                }
            )
        return {
            "name": self.name,
            "about": self.about,
            "pairs": len(self.truth),
            "true": true,
            "flagged": self.flagged,
            "rules": results,
        }


def ask(
    sample: ScoredPairs, measures: Measures, *, k_sc: float, k_al: float, duplicate_iou: float, duplicate_colour: float
) -> list[Question]:
    """Every question that the data can answer: one a set of objects that pairs are judged on, and near-duplicates."""
    questions = []
    groups = np.broadcast_to(np.arange(len(sample.keys))[:, None, None] % GROUPS, sample.level.shape)
    for name, about in SETS.items():
        known = ~np.isnan(measures.objects[name])
        if known.any():
            rules = _rules(sample, measures, known)
            questions.append(
                Question(
                    f"no_shared_{name}",
                    f"the two views share none of: {about}; pairs that show none at all are left out",
                    measures.objects[name][known] == 1,
                    groups[known],
                    {"semantic_consistency": -sample.consistency[known], **{key: -each for key, each in rules.items()}},
                    int((sample.consistency[known] < k_sc).sum()),
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
                {"alignment_level": -sample.level[known], **rules},
                int((sample.level[known] < k_al).sum()),
            )
        )
    return questions


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

"""VS-2FI's thresholds for the pairs of one column, and what they do there, in words."""

from dataclasses import dataclass

from viewkit.pipelines.pairs.column import ScoredPairs, read_pairs
from viewkit.pipelines.pairs.options import FILTER_SHARE
from viewkit.pipelines.vs2fi.artifact import Histograms
from viewkit.pipelines.vs2fi.threshold import consistency_threshold
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import DataError

SAMPLE = 500
"""Images whose pairs are looked at for the words."""


def consistency_threshold_of(dataset: Dataset, pairs: str, k_sc: float | None, share: float | None) -> float:
    """k_SC as it was given, else the one below which `share` (by default `FILTER_SHARE`) of the histograms' pairs lies.

    `DataError` when the histograms that are there are not those that the column was scored with.
    """
    if k_sc is not None:
        return k_sc
    artifact = dataset.artifact("histograms")
    if dataset.column(pairs).identity.inputs.get("histograms") != dataset.input_digest("histograms", for_stage="pairs"):
        raise DataError(
            f"column '{pairs}' was not scored with the histograms that are there, so no share tells its threshold; "
            "rerun 'viewkit rescore', or give --k-sc"
        )
    return consistency_threshold(Histograms.load(artifact), FILTER_SHARE if share is None else share)[0]


@dataclass(frozen=True)
class FilterFacts:
    """What the filter by k_SC does on a sample of rows, each an image's candidates of one round.

    below: share of the pairs below k_SC. relaxed: share of the rows without any pair of k_SC. highest: the largest
    Semantic Consistency of all. first, none: shares of the pairs whose Alignment Level is 1, and L + 1.
    """

    pairs: str
    k_sc: float
    below: float
    relaxed: float
    highest: float
    first: float
    none: float

    def lines(self) -> list[str]:
        """For people; the second and third only where something is wrong."""
        said = [
            f"column '{self.pairs}': k_SC {self.k_sc:.3f} has {100 * self.below:.1f} % of the pairs below it, and "
            f"{100 * self.relaxed:.1f} % of the rows have no pair above (relaxed: their most consistent pair is kept)"
        ]
        if self.relaxed > 0.5:
            said.append(
                f"warning: in more than half of the rows k_SC {self.k_sc:.3f} leaves nothing to choose but the most "
                f"alike pair, the opposite of a harder one (the highest Semantic Consistency here is "
                f"{self.highest:.3f}); lower --k-sc, or give --filter-share {FILTER_SHARE:g} in its place"
            )
        if self.first + self.none > 0.5:
            said.append(
                f"warning: Alignment Level has little depth here: {100 * self.first:.0f} % of the pairs are recognised "
                f"at the first exit and {100 * self.none:.0f} % at none, so k_AL says little; train the estimator "
                "longer, or set another gamma with 'viewkit rescore'"
            )
        return said


def filter_facts(sample: ScoredPairs, pairs: str, k_sc: float) -> FilterFacts:
    """Shares over all rounds of the sample."""
    best = sample.consistency.max(axis=2)
    return FilterFacts(
        pairs,
        k_sc,
        below=float((sample.consistency < k_sc).mean()),
        relaxed=float((best < k_sc).mean()),
        highest=float(best.max()),
        first=float((sample.level == 1).mean()),
        none=float((sample.level == sample.num_exits + 1).mean()),
    )


def filter_lines(
    dataset: Dataset, pairs: str = "pairs", k_sc: float | None = None, share: float | None = None
) -> list[str]:
    """What a threshold, by default the one of `FILTER_SHARE`, does to the stored pairs of the column."""
    threshold = consistency_threshold_of(dataset, pairs, k_sc, share)
    return filter_facts(read_pairs(dataset.column(pairs), SAMPLE), pairs, threshold).lines()


def summary_lines(dataset: Dataset, pairs: str = "pairs") -> list[str]:
    """What 'viewkit score' says at its end of the column that it wrote; nothing while other parts are still to be
    written."""
    if not dataset.is_column(pairs):
        return []
    column = dataset.column(pairs)
    if len(column.complete_shards()) < column.num_shards or "histograms" not in column.identity.inputs:
        return []
    return filter_lines(dataset, pairs) if column.num_rows else []

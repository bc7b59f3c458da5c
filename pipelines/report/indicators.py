"""Charts of VS-2FI's histograms, and of the two indicators over the scored pairs."""

import numpy as np

from viewkit.pipelines.pairs.column import ScoredPairs
from viewkit.pipelines.pairs.filter import consistency_threshold_of, filter_facts
from viewkit.pipelines.report.charts import Chart, Series, bar_chart, line_chart, step_chart
from viewkit.pipelines.vs2fi.artifact import Histograms
from viewkit.pipelines.vs2fi.consistency import semantic_consistency
from viewkit.shards.dataset import Dataset

BINS = 20


def draw_histograms(histograms: Histograms) -> list[Chart]:
    """The similarities of pairs of one image and of two, and the curve read off them."""
    edges = histograms.similarity_edges
    width = edges[1] - edges[0]
    positive, negative = (counts / counts.sum() / width for counts in (histograms.positive, histograms.negative))
    s = np.linspace(edges[0], edges[-1], 200)
    p = semantic_consistency(s, histograms.consistency_curve)
    crossing = s[np.argmax(p >= 0.5)] if (p >= 0.5).any() else None
    said = "never reaches 0.5" if crossing is None else f"reaches 0.5 at a similarity of {crossing:.2f}"
    return [
        step_chart(
            "similarity",
            "Similarity of two views",
            edges,
            [("of one image, p(S | pos)", positive), ("of two images, p(S | neg)", negative)],
            x_label="similarity S (cosine of the estimator's head)",
            y_label="density",
            alt=f"Histograms of similarity over {len(positive)} bins. Mean for views of one image "
            f"{mean_of(positive, edges):.2f}, of two images {mean_of(negative, edges):.2f}.",
        ),
        line_chart(
            "consistency",
            "Semantic Consistency, p(pos | S)",
            [Series("p(pos | S)", s, p)],
            x_label="similarity S",
            y_label="p(pos | S)",
            alt=f"Semantic Consistency over similarity: it runs from {p[0]:.2f} to {p[-1]:.2f} and {said}.",
        ),
    ]


def mean_of(density: np.ndarray, edges: np.ndarray) -> float:
    return float((density * (edges[:-1] + edges[1:]) / 2).sum() / density.sum())


def draw_scores(sample: ScoredPairs) -> list[Chart]:
    """How the pairs of the sample are spread over both indicators."""
    consistency = sample.consistency.reshape(-1)
    counts, edges = np.histogram(consistency, bins=BINS, range=(0, 1))
    levels = np.arange(1, sample.num_exits + 2)
    shares = [float((sample.level == level).mean()) for level in levels]
    words = "; ".join(f"level {level}: {100 * share:.1f} %" for level, share in zip(levels, shares, strict=True))
    quartiles = np.percentile(consistency, [25, 50, 75])
    return [
        step_chart(
            "pairs-consistency",
            "Semantic Consistency of the candidate pairs",
            edges,
            [("pairs", 100 * counts / counts.sum())],
            x_label="Semantic Consistency",
            y_label="% of pairs",
            alt="Semantic Consistency of the pairs: quartiles "
            + ", ".join(f"{value:.2f}" for value in quartiles)
            + ".",
        ),
        bar_chart(
            "pairs-level",
            "Alignment Level of the candidate pairs",
            [*(str(level) for level in levels[:-1]), "none"],
            shares,
            x_label="first exit that recognises the pair",
            y_label="% of pairs",
            alt=f"Alignment Level of the pairs. {words} (level {levels[-1]}: no exit recognises the pair).",
        ),
    ]


def filter_words(dataset: Dataset, sample: ScoredPairs) -> list[str]:
    """What VS-2FI's filters do with the sample at the default share, and whether Alignment Level has depth."""
    k_sc = default_threshold(dataset)
    return [] if k_sc is None else filter_facts(sample, "pairs", k_sc).lines()


def default_threshold(dataset: Dataset) -> float | None:
    """The trainer's k_SC by default; None where the pairs were not scored with the histograms that are there."""
    scored_with = dataset.column("pairs").identity.inputs.get("histograms")
    if scored_with != dataset.input_digest("histograms", for_stage="report"):
        return None
    return consistency_threshold_of(dataset, "pairs", None, None)

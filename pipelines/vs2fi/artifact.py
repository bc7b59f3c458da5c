"""The histograms artifact: what the counts are, what they were counted with, and the distributions read off them."""

from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64
from safetensors.numpy import load_file, save

from viewkit.pipelines.vs2fi.alignment import log_sum_edges
from viewkit.pipelines.vs2fi.consistency import Curve, consistency_curve, isotonic_curve
from viewkit.pipelines.vs2fi.histogram import CELLS, bin_cells, bin_edges, centres, pooled_range
from viewkit.pipelines.vs2fi.matching import require_same
from viewkit.shards.artifact import Artifact
from viewkit.shards.codecs import decode_json, encode_json
from viewkit.shards.errors import DataError
from viewkit.shards.files import read_file, write_atomic

COUNTS = "histograms.safetensors"
FACTS = "histograms.json"
ARRAYS = ("positive_cells", "negative_cells", "soft_mean_cells")


@dataclass(frozen=True, kw_only=True, eq=False)
class Histograms:
    """Counts on the fine grid, and the binned distributions that VS-2FI's indicators need.

    positive_cells, negative_cells: similarities of the head, pairs of one image and of two.
    soft_mean_cells: per exit, the soft mean over N negatives (`alignment.soft_mean`), one value an anchor and group.
    bins: bins of each histogram. negatives: N. tau: temperature of the sums, the estimator's.
    prior_positive: p(pos) of eq. 2. estimator: digest of the estimator artifact. precision: of its forward
    pass. policy, num_views: how the views were sampled. num_images: images that were counted. curve: how Semantic
    Consistency is read off the counts.
    """

    positive_cells: Int64[np.ndarray, " cells"]
    negative_cells: Int64[np.ndarray, " cells"]
    soft_mean_cells: Int64[np.ndarray, "e cells"]
    bins: int
    negatives: int
    tau: float
    prior_positive: float
    estimator: str
    policy: str
    num_views: int
    num_images: int
    precision: str = "fp32"
    curve: Curve = "bins"

    @property
    def num_exits(self) -> int:
        return len(self.soft_mean_cells)

    @cached_property
    def _similarity_span(self) -> tuple[int, int]:
        return pooled_range(np.stack([self.positive_cells, self.negative_cells]), self.bins)

    @cached_property
    def similarity_edges(self) -> Float64[np.ndarray, " edges"]:
        """Edges over the range that positives and negatives share."""
        return bin_edges(self._similarity_span, self.bins)

    @cached_property
    def positive(self) -> Int64[np.ndarray, " b"]:
        return bin_cells(self.positive_cells[None], self._similarity_span, self.bins)[0]

    @cached_property
    def negative(self) -> Int64[np.ndarray, " b"]:
        return bin_cells(self.negative_cells[None], self._similarity_span, self.bins)[0]

    @cached_property
    def consistency_curve(self) -> tuple[Float64[np.ndarray, " k"], Float64[np.ndarray, " k"]]:
        """Knots (similarity, p(pos | S)), eq. 2."""
        curve = isotonic_curve if self.curve == "isotonic" else consistency_curve
        return curve(self.positive, self.negative, self.similarity_edges, self.prior_positive)

    @cached_property
    def _log_sum_spans(self) -> list[tuple[int, int]]:
        return [pooled_range(cells[None], self.bins) for cells in self.soft_mean_cells]

    @cached_property
    def log_sum(self) -> Int64[np.ndarray, "e b"]:
        """Counts of log of the sum over N negatives, each exit over its own range."""
        rows = zip(self.soft_mean_cells, self._log_sum_spans, strict=True)
        return np.concatenate([bin_cells(cells[None], span, self.bins) for cells, span in rows])

    @cached_property
    def log_sum_edges(self) -> Float64[np.ndarray, "e edges"]:
        edges = np.stack([bin_edges(span, self.bins) for span in self._log_sum_spans])
        return log_sum_edges(edges, self.negatives, self.tau)

    @cached_property
    def log_sum_centres(self) -> Float64[np.ndarray, "e b"]:
        return centres(self.log_sum_edges)

    def facts(self) -> dict[str, Any]:
        """Everything that is not counted: the settings two histograms must share to be one."""
        return {item.name: getattr(self, item.name) for item in fields(self) if item.name not in ARRAYS}

    def merge(self, other: "Histograms") -> "Histograms":
        """Both counts as one, exactly. `RefusedError` names what differs when they were not counted alike."""
        alike = [{**each.facts(), "num_exits": each.num_exits, "num_images": None} for each in (self, other)]
        require_same("histograms", "the first part", alike[0], "the second", alike[1], "count both alike")
        counts = {name: getattr(self, name) + getattr(other, name) for name in ARRAYS}
        return replace(self, num_images=self.num_images + other.num_images, **counts)

    def check_counts(self, where: str) -> None:
        """`DataError` unless there are as many counts as `num_images`, `num_views` and N = `negatives` give."""
        pairs = self.num_images * self.num_views * (self.num_views - 1) // 2
        needed = {"positive": pairs, "negative": pairs * self.negatives}
        found = {"positive": int(self.positive_cells.sum()), "negative": int(self.negative_cells.sum())}
        for level, cells in enumerate(self.soft_mean_cells, start=1):
            needed[f"exit {level}"], found[f"exit {level}"] = 2 * pairs, int(cells.sum())
        wrong = [f"{name} ({found[name]} against {needed[name]})" for name in needed if found[name] != needed[name]]
        if wrong:
            raise DataError(
                f"{where}: its counts do not match its num_images {self.num_images}, num_views {self.num_views} and "
                f"negatives {self.negatives}: {', '.join(wrong)}; delete the folder and rerun 'viewkit histograms'"
            )

    def save(self, folder: Path) -> None:
        """Write the counts, and JSON with settings, sample counts, edges and binned counts for people and plots."""
        arrays = {name: np.ascontiguousarray(getattr(self, name)) for name in ARRAYS}
        binned = {
            "num_exits": self.num_exits,
            "num_positive_pairs": int(self.positive_cells.sum()),
            "num_negative_pairs": int(self.negative_cells.sum()),
            "num_log_sums": self.soft_mean_cells.sum(axis=1).tolist(),
            "similarity_edges": self.similarity_edges.tolist(),
            "positive": self.positive.tolist(),
            "negative": self.negative.tolist(),
            "log_sum_edges": self.log_sum_edges.tolist(),
            "log_sum": self.log_sum.tolist(),
        }
        write_atomic(folder / COUNTS, save(arrays))
        write_atomic(folder / FACTS, encode_json({**self.facts(), **binned}))

    @classmethod
    def load(cls, artifact: Artifact) -> "Histograms":
        """Histograms of a complete artifact. `DataError` when a fact is missing or they lie on another grid."""
        facts = {"curve": "bins", **decode_json(read_file(artifact.path(FACTS)))}  # older files have the paper's
        arrays = load_file(artifact.path(COUNTS))
        if any(array.shape[-1] != CELLS for array in arrays.values()):
            raise DataError(
                f"{artifact.folder}: not counted on {CELLS} cells; delete it and rerun 'viewkit histograms'"
            )
        lacking = [item.name for item in fields(cls) if item.name not in ARRAYS and item.name not in facts]
        if lacking:
            raise DataError(
                f"{artifact.path(FACTS)}: lacks {', '.join(lacking)}; delete the folder and rerun 'viewkit histograms'"
            )
        settings: dict[str, Any] = {item.name: facts[item.name] for item in fields(cls) if item.name not in ARRAYS}
        return cls(**{**settings, **arrays})

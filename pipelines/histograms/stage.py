"""Stage `histograms`: the estimator's similarities on the training images, as counts (VS-2FI eq. 2 and 6)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from viewkit.pipelines.engine.batches import batches
from viewkit.pipelines.engine.contract import FitStage, PartFn, Run
from viewkit.pipelines.engine.seeds import smallest
from viewkit.pipelines.engine.threads import side_by_side
from viewkit.pipelines.engine.workers import Report
from viewkit.pipelines.histograms.config import HistogramsConfig
from viewkit.pipelines.histograms.plots import ALIGNMENT_PLOT, CONSISTENCY_PLOT, plot_alignment, plot_consistency
from viewkit.pipelines.models.estimator import Estimator, estimator_facts
from viewkit.pipelines.pairs.candidates import sample_candidates
from viewkit.pipelines.pairs.samples import load_image
from viewkit.pipelines.views.policies import load_policy
from viewkit.pipelines.views.policy import Policy
from viewkit.pipelines.views.sample import sizes_px
from viewkit.pipelines.vs2fi.artifact import Histograms
from viewkit.pipelines.vs2fi.counting import count_group
from viewkit.pipelines.vs2fi.embeddings import ROWS_PER_BATCH, check_policy, embed_candidates
from viewkit.pipelines.vs2fi.histogram import separation
from viewkit.shards.column import Column
from viewkit.shards.dataset import Dataset
from viewkit.shards.document import digest
from viewkit.shards.errors import DataError


class HistogramsStage(FitStage[HistogramsConfig]):
    """Counts groups of N + 1 images in the order of their keys' hashes, so neither sharding nor batches matter, nor who
    counts which group.

    Memory: the embeddings of one group, and one batch of images and views.
    """

    name = "histograms"
    version: ClassVar[int] = 3
    shown_as = "histograms"
    holds: ClassVar[Mapping[str, str]] = {
        "histograms.safetensors": "counts of similarities of positive and negative pairs, and of log sums an exit",
        "histograms.json": "bin edges, N, tau, sample counts, priors, digest of the estimator",
        "*.png": "plots of the histograms, of the Semantic Consistency curve and of the distributions of log sums",
    }
    writes = "histograms"
    in_parts: ClassVar[bool] = True
    logs: ClassVar[tuple[str, ...]] = ("metrics.jsonl", CONSISTENCY_PLOT, ALIGNMENT_PLOT)

    def reads(self, config: HistogramsConfig) -> tuple[str, ...]:
        return ("images", "estimator")

    def inputs(self, config: HistogramsConfig, dataset: Dataset) -> Mapping[str, str]:
        policy = digest(load_policy(config.policy).to_dict())
        return {**super().inputs(config, dataset), "policy": policy}

    def part_work(self, config: HistogramsConfig, run: Run) -> PartFn:
        """Of one group of images, by their keys: its counts, as `count_group` gives them."""
        estimator = Estimator.load(run.dataset.artifact("estimator"), run.device, config.precision)
        policy = load_policy(config.policy).with_side(estimator.side_px)
        images = run.dataset.column("images")

        def count(keys: Sequence[str], report: Report) -> tuple[Int64[np.ndarray, "..."], ...]:
            top, exits = embed_group(estimator, policy, images, keys, config, run, report)
            return tuple(counts.cpu().numpy() for counts in count_group(top, exits, estimator.tau))

        return count

    def fit(self, config: HistogramsConfig, run: Run) -> Mapping[str, Any]:
        """Write counts, facts and plots. Numbers: images, pairs, how well similarity separates the two kinds, and the
        alignment score of a pair that is no more alike than its negatives.

        `DataError` names the image that does not decode, or whose view the estimator gives NaN for.
        """
        artifact = run.dataset.artifact("estimator")
        estimator = estimator_facts(artifact)
        policy = load_policy(config.policy)
        check_policy(self.name, estimator["side_px"], policy, config.side_px)
        images = run.dataset.column("images")
        negatives = negatives_of(estimator, images.num_rows, config)
        groups = image_groups(images.keys(), negatives + 1, config.images)
        run.progress.start(self.name, total=sum(map(len, groups)), unit="images")
        assert run.crew is not None
        positive, negative, sums = total_counts(counts for _, counts in run.crew.do(groups))
        histograms = Histograms(
            positive_cells=positive,
            negative_cells=negative,
            soft_mean_cells=sums,
            bins=config.bins,
            negatives=negatives,
            tau=estimator["tau"],
            prior_positive=config.prior_positive,
            estimator=artifact.digest,
            policy=policy.name,
            num_views=config.num_views,
            num_images=sum(map(len, groups)),
            precision=config.precision,
            curve=config.curve,
        )
        histograms.save(run.folder)
        plot_consistency(histograms, run.folder)
        plot_alignment(histograms, run.folder)
        return {
            "images": histograms.num_images,
            "positive_pairs": int(positive.sum()),
            "negative_pairs": int(negative.sum()),
            "separation": separation(positive, negative),
            "negatives": negatives,
            "chance": 1 / (negatives + 1),  # gamma says something above it
        }


def total_counts(found: Iterable[Sequence[Int64[np.ndarray, "..."]]]) -> list[Int64[np.ndarray, "..."]]:
    """The counts of all groups, kind by kind: whole numbers, so the order of the groups is of no account."""
    totals: list[np.ndarray] = []
    for counts in found:
        totals = [a + b for a, b in zip(totals, counts, strict=True)] if totals else list(counts)
    return totals


def negatives_of(estimator: Mapping[str, Any], num_images: int, config: HistogramsConfig) -> int:
    """N as it was given, else of the estimator's own training: its batch less one, at most the other images.

    estimator: its facts. gamma (eq. 5) means a multiple of chance, 1 / (N + 1), that only another N would change.
    `DataError` where they do not say the batch.
    """
    if config.negatives is not None:
        return config.negatives
    if "batch_size" not in estimator:
        raise DataError("histograms: the estimator does not say its batch size; give --negatives")
    return max(min(int(estimator["batch_size"]), num_images, config.images) - 1, 1)


def image_groups(keys: Sequence[str], group_size: int, images: int) -> list[list[str]]:
    """Groups of different images in the order of their hashes, as many whole ones as `images` and the dataset allow.

    Raises `DataError` when there is none.
    """
    num_groups = min(images, len(keys)) // group_size
    if num_groups == 0:
        raise DataError(
            f"histograms: column 'images' has {len(keys)} rows and --negatives {group_size - 1} needs {group_size} "
            f"different images; give --negatives {max(len(keys) - 1, 1)} or less, or pack more images"
        )
    chosen = smallest(keys, num_groups * group_size)
    return [chosen[start : start + group_size] for start in range(0, len(chosen), group_size)]


def embed_group(
    estimator: Estimator,
    policy: Policy,
    images: Column,
    keys: Sequence[str],
    config: HistogramsConfig,
    run: Run,
    report: Report,
) -> tuple[Tensor, Tensor]:
    """Unit-norm embeddings [n v d] and [n v e d] of the views of one group, on the estimator's device."""
    tops: list[Tensor] = []
    exits: list[Tensor] = []

    def embed(batch: Sequence[str]) -> tuple[Tensor, Tensor]:
        pixels = [load_key(images, key, run.device) for key in batch]
        recipes = sample_candidates(
            policy,
            batch,
            sizes_px(pixels),
            seed=config.seed,
            stage=run.stage,
            round=0,
            num_views=config.num_views,
            pipelines=config.pipelines,
        )
        index = np.arange(len(batch), dtype=np.int64)[:, None].repeat(config.num_views, axis=1)
        top, deep = embed_candidates(estimator, pixels, recipes, index, policy.interpolation)
        check_numbers(batch, top, deep)
        return top, deep

    for top, deep in side_by_side(embed, batches(keys, ROWS_PER_BATCH), run.device, run.threads):
        tops.append(top)
        exits.append(deep)
        report(len(top))
    return torch.cat(tops), torch.cat(exits)


def load_key(images: Column, key: str, device: str) -> Tensor:
    """The image of one row, 0-255 RGB; `DataError` names the row when it does not decode."""
    try:
        return load_image(images.fields(images.place_of[key]), device)
    except DataError as error:
        raise DataError(
            f"histograms: column 'images': row {key}: {error}; 'viewkit verify' finds what else is damaged, then "
            "delete the column and rerun 'viewkit pack'"
        ) from error


def check_numbers(keys: Sequence[str], top: Tensor, exits: Tensor) -> None:
    """`DataError` naming the first row with an embedding that is NaN; a NaN has no place in a histogram."""
    wrong = torch.isnan(top.flatten(1)).any(1) | torch.isnan(exits.flatten(1)).any(1)
    if bool(wrong.any()):
        key = keys[int(wrong.nonzero()[0])]
        raise DataError(
            f"histograms: the estimator gives NaN for row {key} ({int(wrong.sum())} of {len(keys)} rows of its batch); "
            "delete the estimator and rerun 'viewkit estimator'"
        )

"""Pairs for any trainer: viewkit's own reads them here, and so can yours (README, "From your own trainer")."""

from typing import Literal

from viewkit.pipelines.training.pairs import Chooser, PairSource, RandomPairs, Sides
from viewkit.pipelines.training.samples import SampleReader
from viewkit.pipelines.training.selection import StoredPairs, Vs2fiPairs
from viewkit.pipelines.views.policies import load_policy
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ConfigError, DataError
from viewkit.shards.loader import Loader

PAIRS, QUALITY = "pairs", "quality"


def load_pairs(
    dataset: Dataset,
    *,
    policy: str,
    side_px: int,
    batch_size: int,
    select: Literal["random", "stored", "vs2fi"] = "random",
    pairs: str = PAIRS,
    k_sc: float = 0.99,
    k_al: float | None = None,
    alpha: float = 0.0,
    generated: Sides = "one",
    weights: Literal["none", "quality"] = "none",
    seed: int = 0,
    stage: str = "pretrain",
    device: str = "cpu",
    rank: int = 0,
    world_size: int = 1,
) -> PairSource:
    """Batches of rendered, normalised pairs; ``source.epoch(e)`` gives `ViewBatch`es, the same ones for the same seed.

    policy: a policy's name or TOML file. select: pairs drawn afresh, any of the candidates in column `pairs`, or those
        of them that pass both filters (VS-2FI, Alg. 1); k_sc and k_al as in `viewkit pretrain`.
    alpha: probability that one view of the two, or with generated "both" both, is cut from the generated image (column
        `genview`); 0 leaves stored pairs as they were scored.
    weights: with "quality" the batches carry q of their pairs (column `quality`), and `losses.quality_weights` makes
        weights of them.
    rank, world_size: of this process; every rank gets other rows and the same number of steps.
    Raises `DataError` for a missing column or one made from other images, `ConfigError` for fewer rows than a batch.
    """
    law = load_policy(policy).with_side(side_px)
    if weights == "quality" and select == "random":
        raise ConfigError(
            "weights is 'quality' and select is 'random': quality is known of stored pairs only; set "
            "--select stored or vs2fi"
        )
    random = RandomPairs(law, seed=seed, stage=stage, alpha=alpha, generated=generated)
    choose = _chooser(select, random, k_sc=k_sc, k_al=k_al, quality=weights == "quality")
    columns = ["images"]
    if select != "random":
        columns.append(pairs)
    if alpha > 0 or (select != "random" and has_generated_views(dataset, pairs)):
        columns.append("genview")
    if weights == "quality":
        columns.append(QUALITY)
    for column in columns:
        dataset.check_inputs(column)
    if weights == "quality":
        check_quality(dataset, pairs)
    loader = Loader(
        dataset,
        columns,
        batch_size=batch_size,
        seed=seed,
        transform=SampleReader(pairs=pairs),
        rank=rank,
        world_size=world_size,
    )
    return PairSource(loader, choose, law, device, turns=select == "random")


def _chooser(select: str, random: RandomPairs, *, k_sc: float, k_al: float | None, quality: bool) -> Chooser:
    if select == "vs2fi":
        return Vs2fiPairs(random, k_sc=k_sc, k_al=k_al, quality=quality)
    return StoredPairs(random, quality=quality) if select == "stored" else random


def has_generated_views(dataset: Dataset, pairs: str = PAIRS) -> bool:
    """Whether `score` cut some of the candidate views from generated images."""
    return "genview" in dataset.column(pairs).identity.inputs


def check_quality(dataset: Dataset, pairs: str) -> None:
    """`DataError` unless the column `quality` rates the very views whose recipes `pairs` holds.

    `rescore` copies recipes, and names the column it took them from among its inputs as "similarities".
    """
    column = dataset.column(pairs)
    if dataset.column(QUALITY).identity.inputs.get(PAIRS) not in (
        column.digest,
        column.identity.inputs.get("similarities"),
    ):
        raise DataError(
            f"{dataset.path / QUALITY}: it rates other pairs than those in column '{pairs}'; delete "
            f"{dataset.path / QUALITY} and rerun 'viewkit quality'"
        )

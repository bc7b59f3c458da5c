"""Pairs for any trainer: viewkit's own reads them here, and so can yours (README, "From your own trainer")."""

from typing import Literal

from viewkit.pipelines.training.pairs import Chooser, PairSource, RandomPairs
from viewkit.pipelines.training.samples import SampleReader
from viewkit.pipelines.training.selection import Vs2fiPairs
from viewkit.pipelines.views.policies import load_policy
from viewkit.shards.dataset import Dataset
from viewkit.shards.loader import Loader

PAIRS = "pairs"


def load_pairs(
    dataset: Dataset,
    *,
    policy: str,
    side_px: int,
    batch_size: int,
    select: Literal["random", "vs2fi"] = "random",
    pairs: str = PAIRS,
    k_sc: float = 0.99,
    k_al: float | None = None,
    alpha: float = 0.0,
    seed: int = 0,
    stage: str = "pretrain",
    device: str = "cpu",
    rank: int = 0,
    world_size: int = 1,
) -> PairSource:
    """Batches of rendered, normalised pairs; ``source.epoch(e)`` gives `PairBatch`es, the same ones for the same seed.

    policy: a policy's name or TOML file. select: pairs drawn afresh, or those among the candidates in column `pairs`
        that pass both filters (VS-2FI, Alg. 1); k_sc and k_al as in `viewkit pretrain`.
    alpha: probability that one of the two views is cut from the generated image (column `genview`).
    rank, world_size: of this process; every rank gets other rows and the same number of steps.
    Raises `DataError` for a missing column or one made from other images, `ConfigError` for fewer rows than a batch.
    """
    law = load_policy(policy).with_side(side_px)
    columns = ["images"]
    if select == "vs2fi":
        columns.append(pairs)
    if alpha > 0 or (select == "vs2fi" and has_generated_views(dataset)):
        columns.append("genview")
    for column in columns:
        dataset.check_inputs(column)
    loader = Loader(
        dataset,
        columns,
        batch_size=batch_size,
        seed=seed,
        transform=SampleReader(pairs=pairs),
        rank=rank,
        world_size=world_size,
    )
    random = RandomPairs(law, seed=seed, stage=stage, alpha=alpha)
    choose: Chooser = Vs2fiPairs(random, k_sc=k_sc, k_al=k_al) if select == "vs2fi" else random
    return PairSource(loader, choose, law, device)


def has_generated_views(dataset: Dataset) -> bool:
    """Whether `score` cut some of the candidate views from generated images."""
    return bool(dataset.column(PAIRS).identity.config.get("candidates", "original") != "original")

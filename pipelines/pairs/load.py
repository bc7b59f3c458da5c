"""Pairs for any trainer: viewkit's own reads them here, and so can yours (docs/other-trainers.md)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from viewkit.pipelines.pairs.column import has_scores, require_scores
from viewkit.pipelines.pairs.filter import consistency_threshold_of
from viewkit.pipelines.pairs.generated import GENVIEW, DrawnFrom, generated_column
from viewkit.pipelines.pairs.names import PAIRS
from viewkit.pipelines.pairs.plan import RecipeSampler
from viewkit.pipelines.pairs.random import GeneratedViews, RandomPairs
from viewkit.pipelines.pairs.same_policy import check_same_policy
from viewkit.pipelines.pairs.samples import QUALITY, Sample, SampleReader
from viewkit.pipelines.pairs.source import PairSource
from viewkit.pipelines.pairs.stored import StoredPairs
from viewkit.pipelines.pairs.vs2fi import Vs2fiPairs
from viewkit.pipelines.views.policies import load_policy
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ConfigError, DataError
from viewkit.shards.loader import Loader

Weights = Literal["none", "quality"]


@dataclass(frozen=True, kw_only=True)
class Selection:
    """What a source of pairs may take into account: thresholds of VS-2FI's filters, whether q is reported, and which
    views were to be cropped from generated images."""

    k_sc: float = 0.0
    k_al: float | None = None
    quality: bool = False
    candidates: DrawnFrom = "original"


@dataclass(frozen=True)
class Source:
    """A way to get pairs. sampler: made from random pairs, to fall back on. is_stored: it reads the column of pairs.
    filters: by `Selection.k_sc`, for which the histograms are read where none is given."""

    sampler: Callable[[RandomPairs, Selection], RecipeSampler]
    is_stored: bool
    filters: bool = False


SOURCES: Mapping[str, Source] = MappingProxyType(
    {
        "random": Source(lambda random, _: random, is_stored=False),
        "stored": Source(
            lambda random, s: StoredPairs(random, quality=s.quality, candidates=s.candidates), is_stored=True
        ),
        "vs2fi": Source(
            lambda random, s: Vs2fiPairs(random, k_sc=s.k_sc, k_al=s.k_al, quality=s.quality, candidates=s.candidates),
            is_stored=True,
            filters=True,
        ),
    }
)
"""Sources of pairs by name. Another one is a line here."""


def load_pairs(
    dataset: Dataset,
    *,
    policy: str,
    side_px: int,
    batch_size: int,
    select: str = "random",
    pairs: str = PAIRS,
    k_sc: float | None = None,
    filter_share: float | None = None,
    k_al: float | None = None,
    alpha: float = 0.0,
    generated: GeneratedViews = "one",
    weights: Weights = "none",
    genview: str = GENVIEW,
    quality: str = QUALITY,
    other_policy: bool = False,
    epochs: int = 1,
    seed: int = 0,
    stage: str = "pretrain",
    device: str = "cpu",
    rank: int = 0,
    world_size: int = 1,
) -> PairSource:
    """Batches of rendered, normalised pairs; ``source.epoch(e)`` gives `ViewBatch`es, the same ones for the same seed.

    policy: a policy's name or TOML file. select: one of `SOURCES`: pairs sampled anew each epoch, any of the candidates
        in column `pairs`, or those of them that pass both filters (VS-2FI, Alg. 1); k_sc, filter_share
        and k_al as in `viewkit pretrain`.
    alpha: probability that one view of the two, or with generated "both" both, is cropped from the generated image
        (column `genview`); 0 leaves stored pairs as they were scored.
    weights: with "quality" the batches carry q of their pairs (column `quality`), from which `losses.row_weights`
        computes weights.
    genview, quality: names of these columns. Stored pairs that are cropped from generated images take no other genview
        with alpha above 0.
    other_policy: take stored pairs that were sampled by another policy than `policy`, which is refused else.
    epochs: of the whole training, over which a policy's ceiling on overlaps moves.
    rank, world_size: of this process; every rank gets other rows and the same number of steps.
    Raises `DataError` for a missing column or one made from other images, `ConfigError` for fewer rows than a batch.
    """
    spec = load_policy(policy).with_side(side_px)
    random = RandomPairs(spec, seed=seed, stage=stage, alpha=alpha, generated=generated, rounds=epochs)
    source = source_of(select, weights)
    loader = open_loader(
        dataset,
        select=select,
        pairs=pairs,
        alpha=alpha,
        weights=weights,
        genview=genview,
        quality=quality,
        batch_size=batch_size,
        seed=seed,
        rank=rank,
        world_size=world_size,
    )
    if source.is_stored and not other_policy:
        check_same_policy(dataset, pairs, load_policy(policy))
    threshold = consistency_threshold_of(dataset, pairs, k_sc, filter_share) if source.filters else 0.0
    candidates = candidates_of(dataset, pairs) if source.is_stored else "original"
    selection = Selection(k_sc=threshold, k_al=k_al, quality=weights == "quality", candidates=candidates)
    sampler = source.sampler(random, selection)
    return PairSource(loader, sampler, spec, device, cycle_generated=not source.is_stored)


def source_of(select: str, weights: Weights = "none") -> Source:
    """`ConfigError` for an unknown source, and for weights by quality of pairs whose quality nobody measured."""
    if select not in SOURCES:
        raise ConfigError(f"select is '{select}'; it must be one of {', '.join(SOURCES)}")
    if weights == "quality" and not SOURCES[select].is_stored:
        raise ConfigError(
            f"weights is 'quality' and select is '{select}': the column 'quality' rates stored pairs only; set "
            "select to stored or vs2fi ('viewkit pretrain' rates fresh pairs itself)"
        )
    return SOURCES[select]


def open_loader(
    dataset: Dataset,
    *,
    select: str = "random",
    pairs: str = PAIRS,
    alpha: float = 0.0,
    weights: Weights = "none",
    genview: str = GENVIEW,
    quality: str = QUALITY,
    batch_size: int,
    seed: int,
    rank: int = 0,
    world_size: int = 1,
) -> Loader[Sample]:
    """The loader of the columns that such pairs need, after checking that they belong together; see `load_pairs`."""
    is_stored = source_of(select, weights).is_stored
    columns = ["images"]
    if is_stored:
        columns.append(pairs)
        if select != "stored":
            require_scores(dataset.column(pairs))
        genview = (
            stored_genview(dataset.column(pairs).identity.inputs, pairs, genview if alpha > 0 else None) or genview
        )
    if alpha > 0 or (is_stored and has_generated_views(dataset, pairs)):
        columns.append(genview)
    if weights == "quality":
        columns.append(quality)
    for column in columns:
        dataset.check_inputs(column)
    if weights == "quality":
        check_quality(dataset, pairs, quality)
    return Loader(
        dataset,
        columns,
        batch_size=batch_size,
        seed=seed,
        transform=SampleReader(
            pairs=pairs,
            genview=genview,
            quality=quality,
            has_scores=not is_stored or has_scores(dataset.column(pairs)),
        ),
        rank=rank,
        world_size=world_size,
    )


def stored_genview(inputs: Mapping[str, str], pairs: str, asked: str | None) -> str | None:
    """The column of generated views that stored views are cropped from; None where there is none.

    inputs: of the column of pairs. asked: the column that further views are to be cropped from. `DataError` where it is
    another one: a row has one generated image.
    """
    made_with = generated_column(inputs)
    if None not in (made_with, asked) and made_with != asked:
        raise DataError(
            f"column '{pairs}': its views are cropped from '{made_with}', and alpha above 0 asks for views of "
            f"'{asked}'; set --genview {made_with}, --alpha 0, or 'viewkit score' other pairs with --genview {asked}"
        )
    return made_with


def has_generated_views(dataset: Dataset, pairs: str = PAIRS) -> bool:
    """Whether some of the stored views are cropped from generated images."""
    return generated_column(dataset.column(pairs).identity.inputs) is not None


def candidates_of(dataset: Dataset, pairs: str) -> DrawnFrom:
    """Which of the stored views were to be cropped from generated images; `rescore` copies the recipes of others."""
    config = dataset.column(pairs).identity.config
    found: DrawnFrom = config.get("candidates", "mixed" if has_generated_views(dataset, pairs) else "original")
    return found


def check_quality(dataset: Dataset, pairs: str, quality: str = QUALITY) -> None:
    """`DataError` unless the column of qualities rates the very views whose recipes `pairs` holds.

    `rescore` copies recipes, and names the column it took them from among its inputs as "similarities".
    """
    column = dataset.column(pairs)
    rated = dataset.column(quality).identity.inputs.values()
    if not {column.digest, column.identity.inputs.get("similarities")} & set(rated):
        raise DataError(
            f"{dataset.path / quality}: it rates other pairs than those in column '{pairs}'; delete "
            f"{dataset.path / quality} and rerun 'viewkit quality', or name another one with --quality-column"
        )

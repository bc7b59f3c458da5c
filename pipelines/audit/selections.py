"""What every selection of stored pairs takes, and the share of it that is bad: exactly, without sampling a pair."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64

from viewkit.pipelines.audit.filtering import filtered_shares
from viewkit.pipelines.audit.measures import Measures
from viewkit.pipelines.audit.ranking import jackknife_error
from viewkit.pipelines.engine.seeds import row_ids
from viewkit.pipelines.pairs.column import CONSISTENCY, LEVEL, ScoredPairs
from viewkit.pipelines.pairs.rules import Facts, Kept, Limits, facts_of, keep_pairs
from viewkit.pipelines.pairs.selections import SELECT
from viewkit.pipelines.views.sample import sample_permutations

ANY, FILTERS = "stored", "vs2fi"
LOWEST_LEVEL = 1.0
PLACEBOS = 10
"""Permutations whose mean is a selection's placebo."""


def compare_selections(
    sample: ScoredPairs,
    measures: Measures,
    bad: Mapping[str, Float64[np.ndarray, "n r c"]],
    group: Int64[np.ndarray, " n"],
    *,
    k_sc: float,
    k_al: float,
) -> list[dict[str, Any]]:
    """Of every selection: pairs kept of a row, share of the rows that relaxed, mean overlap, and shares of bad pairs.

    bad: kind of bad pairs -> 1 for those, 0 for others, NaN where it is not known; a share is of the known ones that a
    selection takes. group: of each image, for the standard errors. A difference is to any pair, `stored`. A placebo is
    the same rule with each row's facts handed to other pairs of the row, the mean of `PLACEBOS` permutations: what the
    rule gets by keeping as many pairs, knowing nothing. It is the share of any pair, but by chance.
    """
    rounds, num_pairs = sample.scores.shape[1:3]
    facts = all_facts(sample, measures)
    overlaps = measures.iou.reshape(-1, num_pairs)
    rows = group.repeat(rounds)
    flat = {name: values.reshape(-1, num_pairs) for name, values in bad.items()}
    orders = list(permutations(sample.keys, rounds, num_pairs))
    reference = {name: left_out_shares(np.ones_like(values), values, rows) for name, values in flat.items()}
    found = []
    for name, (select, limits) in selections(Limits(k_sc=k_sc, k_al=k_al)).items():
        if "objects" in SELECT[select].needs and not measures.annotated:
            continue
        kept = keep_pairs(select, facts, limits)
        taken = evenly(kept)
        fake = [evenly(keep_pairs(select, facts.permuted(order), limits)) for order in orders]
        placebo = np.mean(fake, axis=0)
        shares = {}
        for kind, values in flat.items():
            share, blind = left_out_shares(taken, values, rows), left_out_shares(placebo, values, rows)
            shares[kind] = {
                **with_error(share, ""),
                **with_error(share - reference[kind], "difference_"),
                **with_error(blind, "placebo_"),
            }
        found.append(
            {
                "name": name,
                "kept": float(kept.pairs.sum(axis=1).mean()),
                "relaxed": relaxed_share(select, facts, limits, kept),
                "iou": number(left_out_shares(taken, overlaps, rows)[0]),
                "bad": shares,
            }
        )
    return found


def relaxed_share(select: str, facts: Facts, limits: Limits, kept: Kept) -> float | None:
    """Share of the rows without a pair as the rule wants it; None of rules that never relax. Of VS-2FI's filters, by
    either threshold: what is counted for a training is k_SC's alone."""
    if select == FILTERS:
        assert facts.scores is not None and limits.k_al is not None
        consistency, level = facts.scores[:, :, CONSISTENCY], facts.scores[:, :, LEVEL]
        return filtered_shares(consistency, level, limits.k_sc, limits.k_al)["relaxed"]
    relaxed = kept.counted.get("relaxed_pairs")
    return None if relaxed is None else float(relaxed.mean())


def selections(limits: Limits) -> dict[str, tuple[str, Limits]]:
    """Name -> (name in `SELECT`, limits): every selection of stored pairs, and each filter of VS-2FI alone."""
    found: dict[str, tuple[str, Limits]] = {}
    for name in (name for name, each in SELECT.items() if each.stored):
        if name == FILTERS:
            found["semantic_consistency"] = FILTERS, Limits(k_sc=limits.k_sc, k_al=LOWEST_LEVEL)
            found["alignment_level"] = FILTERS, Limits(k_sc=0.0, k_al=limits.k_al)
        found[name] = name, limits
    return found


def all_facts(sample: ScoredPairs, measures: Measures) -> Facts:
    """What rules may know of the pairs, a row for every image and round."""
    num_views, fields = sample.recipes.shape[2:]
    num_pairs, num_scores = sample.scores.shape[2:]
    recipes, scores = sample.recipes.reshape(-1, num_views, fields), sample.scores.reshape(-1, num_pairs, num_scores)
    return facts_of(recipes, scores, measures.common.reshape(-1, num_pairs))


def permutations(keys: list[str], rounds: int, num_pairs: int) -> Iterator[Int64[np.ndarray, "m c"]]:
    """`PLACEBOS` permutations of every row's pairs, m = images x rounds."""
    ids = row_ids([f"{key}\0{round_}" for key in keys for round_ in range(rounds)])
    for draw in range(PLACEBOS):
        yield sample_permutations(ids, num_pairs, seed=0, stage="audit", round=draw)


def evenly(kept: Kept) -> Float64[np.ndarray, "m c"]:
    """The chance of every pair of a row to be taken."""
    return np.asarray(kept.pairs / kept.pairs.sum(axis=1, keepdims=True))


def left_out_shares(
    taken: Float64[np.ndarray, "m c"], values: Float64[np.ndarray, "m c"], group: Int64[np.ndarray, " m"]
) -> Float64[np.ndarray, " k"]:
    """The mean of the known values over the pairs that are taken: of all rows, then without each group in turn.

    NaN where nothing is known.
    """
    known = ~np.isnan(values)
    _, place = np.unique(group, return_inverse=True)
    top = np.bincount(place, weights=(taken * np.where(known, values, 0)).sum(axis=1))
    bottom = np.bincount(place, weights=(taken * known).sum(axis=1))
    tops, bottoms = (np.concatenate([[each.sum()], each.sum() - each]) for each in (top, bottom))
    return np.divide(tops, bottoms, out=np.full(len(tops), np.nan), where=bottoms > 0)


def with_error(values: Float64[np.ndarray, " k"], prefix: str) -> dict[str, float | None]:
    """A value and its standard error by the jackknife."""
    return {f"{prefix}share": number(values[0]), f"{prefix}error": jackknife_error(values[1:])}


def number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)

"""A selection from outside: of the pairs whose crops share area the one that shares least."""

from viewkit.pipelines.pairs.rules import Facts, Kept, Limits, without_overlap
from viewkit.pipelines.pairs.select import keep_highest, keep_overlapping


def least_overlapping(facts: Facts, limits: Limits) -> Kept:
    return Kept(keep_highest(-facts.overlaps, keep_overlapping(facts.overlaps)), without_overlap(facts))

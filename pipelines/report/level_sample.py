"""Which rows of a column of views to show: all noise levels, however rare some of them are."""

from collections import defaultdict
from collections.abc import Mapping

from viewkit.pipelines.seeds import smallest
from viewkit.shards.codecs import decode_json
from viewkit.shards.column import Column


def spread_over_levels(levels: Mapping[str, int], count: int) -> list[str]:
    """Up to `count` keys, as evenly spread over the levels as they allow, ordered by level, then by key hash.

    levels: noise level by key. Within a level the keys with the smallest hashes are taken.
    """
    waiting: dict[int, list[str]] = defaultdict(list)
    for key in smallest(levels, len(levels)):
        waiting[levels[key]].append(key)
    taken: dict[int, int] = dict.fromkeys(sorted(waiting), 0)
    for _ in range(min(count, len(levels))):
        level = min((each for each in taken if taken[each] < len(waiting[each])), key=lambda each: (taken[each], each))
        taken[level] += 1
    return [key for level, number in taken.items() for key in waiting[level][:number]]


def read_levels(views: Column, sample: int) -> dict[str, int]:
    """Noise level by key, of the (at most `sample`) rows with the smallest key hashes."""
    keys = smallest(views.keys(), sample)
    return {key: int(decode_json(views.fields(views.place_of[key])["json"])["level"]) for key in keys}

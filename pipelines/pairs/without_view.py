"""Rows that need a generated view or pairs and have none."""

from viewkit.pipelines.engine.rejects import reject
from viewkit.pipelines.pairs.generated import NOT_IN_SUBSET
from viewkit.shards.column import Column
from viewkit.shards.row import Reject


def reject_without_view(key: str, genview: Column) -> Reject:
    """``not_in_subset`` where the column of generated views left the row out on purpose, else ``no_generated_view``."""
    return _left_out(key, genview) or reject(
        key, "no_generated_view", f"column '{genview.name}' has no view of this image"
    )


def reject_without_pairs(key: str, pairs: Column) -> Reject:
    """``not_in_subset`` where the column of pairs left the row out on purpose, else ``no_pairs``."""
    return _left_out(key, pairs) or reject(key, "no_pairs", f"column '{pairs.name}' rejected this row")


def _left_out(key: str, needed: Column) -> Reject | None:
    theirs = needed.rejects.get(key)
    if theirs is None or theirs.reason != NOT_IN_SUBSET:
        return None
    return reject(key, NOT_IN_SUBSET, f"column '{needed.name}' left this image out on purpose")

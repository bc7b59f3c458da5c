"""Rows that need a generated view and have none."""

from viewkit.pipelines.engine.rejects import reject
from viewkit.pipelines.pairs.generated import NOT_IN_SUBSET
from viewkit.shards.column import Column
from viewkit.shards.row import Reject


def reject_without_view(key: str, genview: Column) -> Reject:
    """``not_in_subset`` where the column of generated views left the row out on purpose, else ``no_generated_view``."""
    theirs = genview.rejects.get(key)
    if theirs is not None and theirs.reason == NOT_IN_SUBSET:
        return reject(key, NOT_IN_SUBSET, f"column '{genview.name}' left this image out on purpose")
    return reject(key, "no_generated_view", f"column '{genview.name}' has no view of this image")

"""Generated images among an image's views: the columns that hold them, and which candidate views come from them."""

import re
from collections.abc import Mapping
from typing import Literal

from viewkit.shards.errors import ConfigError

GENVIEW = "genview"
NAME = re.compile(rf"{GENVIEW}(_[A-Za-z0-9_-]{{1,80}})?")

NOT_IN_SUBSET = "not_in_subset"
"""Reason of the images that `generate` was told to leave out; they do not count for ``--max-rejects``."""

Candidates = Literal["original", "generated", "mixed"]
"""Image that candidate views are cropped from; mixed: original, generated, original, ..."""
DrawnFrom = Literal["original", "generated", "mixed", "either"]
"""The same with `either`: half of the views, one of two, is cropped from the generated image, whichever."""

GeneratedViews = Literal["one", "both"]
"""How many views of a pair are cropped from the generated image, in the rows where any is."""
PAIR = 2
"""Views of a plain pair; with ``generated`` "extra" a third follows."""


def check_genview(column: str) -> str:
    """The name of a column of generated views, `genview` or `genview_NAME`; `ConfigError` for any other."""
    if not NAME.fullmatch(column):
        raise ConfigError(
            f"column of generated views is '{column}'; call it {GENVIEW} or {GENVIEW}_NAME, with letters, digits, '_' "
            "and '-'"
        )
    return column


def generated_column(inputs: Mapping[str, str]) -> str | None:
    """The column of generated views among the inputs of what was made with one; None where there is none."""
    return next((name for name in inputs if NAME.fullmatch(name)), None)


def missing_note(stage: str, rows: int, present: int, column: str, candidates: DrawnFrom) -> tuple[str, ...]:
    """A line to show where some images have no generated view: their views are all of the original, or they are
    rejected where every view must be of the generated one."""
    if present == rows:
        return ()
    what = "they are rejected" if candidates == "generated" else "theirs are cropped from originals"
    return (f"{stage}: {rows - present} of {rows} images have no view in '{column}'; {what}",)

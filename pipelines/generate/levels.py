"""Noise levels that are not read off the foreground alone: at random (GenView, table 9), or by a user's table."""

import csv
import hashlib
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np

from viewkit.pipelines.foreground.share import LEVELS
from viewkit.pipelines.generate.own.facts import GeneratorFacts
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import DataError

MEASURED = (0, 200, 400, 600, 800, 999)
"""Levels at which generators are measured."""
MAX_LEVEL = 999
"""Largest level there is."""
MAX_SHARE = 24
"""Characters of a share."""
HEADERS = {"share": ("share", "level"), "key": ("key", "level")}


def sample_level(generator: np.random.Generator, levels: Sequence[int] = LEVELS) -> int:
    """One of the levels, by default 0, 100 ... 400, each with the same probability."""
    return levels[int(generator.integers(len(levels)))]


def calibrated_levels(dataset: Dataset) -> Sequence[int]:
    """The five steps that `viewkit generator` has placed by what is still recognised."""
    return GeneratorFacts.read(dataset.artifact("generator")).levels


@dataclass(frozen=True)
class LevelTable:
    """A user's own levels, of one of two kinds: by foreground share or by key; the other mapping is empty.

    by_share: from which share on a level holds, ascending, the first 0. Shares are fractions, so 0.6 of 5 tokens is 3
    tokens exactly. digest: SHA-256 of the file, part of the identity of what is made with it.
    """

    by_share: Sequence[tuple[Fraction, int]]
    by_key: Mapping[str, int]
    digest: str

    @staticmethod
    def read(path: Path) -> "LevelTable":
        """A CSV file with the header ``share,level`` or ``key,level``; `DataError` names the line that is wrong."""
        try:
            content = path.read_bytes()
            lines = list(csv.reader(io.StringIO(content.decode("utf-8-sig"), newline="")))
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise DataError(f"{path}: cannot be read as a level table ({error}); it must be a CSV file") from error
        rows = [(number, [cell.strip() for cell in line]) for number, line in enumerate(lines, 1) if any(line)]
        header = tuple(rows[0][1]) if rows else ()
        if header not in HEADERS.values() or len(rows) < 2:
            raise DataError(
                f"{path}: begins with '{','.join(header)}'; it must be 'share,level' or 'key,level', and rows"
            )
        digest = hashlib.sha256(content).hexdigest()
        pairs = [_pair(path, number, cells) for number, cells in rows[1:]]
        if header == HEADERS["share"]:
            return LevelTable(_shares(path, pairs), {}, digest)
        by_key = dict(pairs)
        if len(by_key) < len(pairs):
            twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
            raise DataError(f"{path}: names the key {twice} more than once")
        return LevelTable((), by_key, digest)

    def check_keys(self, keys: Sequence[str]) -> None:
        """`DataError` unless a table by key has all of `keys`."""
        if self.by_key and (missing := [key for key in keys if key not in self.by_key]):
            raise DataError(f"level table: has no level for {len(missing)} images (first: {missing[0]}); add them")

    def level(self, key: str, count: int, total: int) -> int:
        """Level of the image `key` with `count` foreground tokens among `total`."""
        if self.by_key:
            return self.by_key[key]
        return [level for share, level in self.by_share if count >= share * total][-1]


def _pair(path: Path, number: int, cells: Sequence[str]) -> tuple[str, int]:
    """First cell and level of one line."""
    if len(cells) != 2 or not cells[0]:
        raise DataError(f"{path}: line {number} has {len(cells)} cells; two are needed")
    if not (cells[1].isascii() and cells[1].isdigit() and len(cells[1]) <= 9 and int(cells[1]) <= MAX_LEVEL):
        raise DataError(
            f"{path}: line {number} has the level '{cells[1]}'; levels are whole numbers in 0 ... {MAX_LEVEL}"
        )
    return cells[0], int(cells[1])


def _share(text: str) -> Fraction:
    """`ValueError` for what is no number, or for one with an exponent that would fill the memory."""
    if len(text) > MAX_SHARE or "e" in text.lower():
        raise ValueError(f"'{text[:MAX_SHARE]}'; write it as 0.2 or 1/5")
    return Fraction(text)


def _shares(path: Path, pairs: Sequence[tuple[str, int]]) -> list[tuple[Fraction, int]]:
    """The pairs with their shares as numbers."""
    try:
        found = [(_share(share), level) for share, level in pairs]
    except (ValueError, ZeroDivisionError) as error:
        raise DataError(f"{path}: has a share that is no number ({error}); e.g. 0.2") from error
    shares = [share for share, _ in found]
    if shares[0] != 0 or shares[-1] > 1 or any(low >= high for low, high in pairwise(shares)):
        raise DataError(f"{path}: shares must begin with 0 and ascend to 1 at most, one line each")
    return found

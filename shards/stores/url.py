"""Names of places in object stores, ``s3://BUCKET/PREFIX``; imports nothing of any store."""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from viewkit.shards.errors import ConfigError

SCHEMES = ("s3", "gs", "az")
NEEDED = "s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX"
SHAPE = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]+):/+(.*)", re.DOTALL)
"""One slash will do: `pathlib` makes one of two."""
ONE_SLASH = re.compile(rf"\b((?:{'|'.join(SCHEMES)}):)/(?=[A-Za-z0-9])")
BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class StoreURL:
    """prefix: names with single slashes between them, none at the ends; empty only of a whole bucket, see `holder`."""

    scheme: str
    bucket: str
    prefix: str

    def __str__(self) -> str:
        return f"{self.scheme}://{self.bucket}" + (f"/{self.prefix}" if self.prefix else "")

    @property
    def digest(self) -> str:
        """Names its folder in the cache."""
        return hashlib.sha256(str(self).encode("utf-8", "surrogateescape")).hexdigest()[:32]

    @property
    def name(self) -> str:
        """The last part: of the dataset, the folder or the file; the bucket's where that is all."""
        return self.prefix.rpartition("/")[2] or self.bucket

    @property
    def holder(self) -> "StoreURL":
        """The folder that a file lies in, which may be the whole bucket; nobody can name that, to write into it."""
        return StoreURL(self.scheme, self.bucket, self.prefix.rpartition("/")[0])

    def above(self, levels: int) -> "StoreURL | None":
        """The place so many levels higher; None where there is none below the bucket."""
        parts = self.prefix.split("/")
        return StoreURL(self.scheme, self.bucket, "/".join(parts[:-levels])) if len(parts) > levels else None


def is_url(place: str | Path) -> bool:
    """Whether `place` is the name of a place in a store, or is meant to be one; else it is a path.

    A Windows drive and the schemes of `pack` (``demo:train``) have no slash right after the colon, or one letter alone.
    """
    found = SHAPE.match(str(place))
    return found is not None and (found[1].lower() in SCHEMES or "://" in str(place))


def parse_url(place: str | Path) -> StoreURL:
    """`ConfigError` for another scheme, a missing bucket or prefix, and for a URL with credentials in it, which is not
    repeated."""
    text = str(place)
    found = SHAPE.match(text)
    scheme, rest = (found[1].lower(), found[2]) if found else ("", text)
    if scheme not in SCHEMES:
        raise ConfigError(f"{_without_secrets(text)}: stores are named {NEEDED}; copy anything else to a local folder")
    bucket, _, prefix = rest.partition("/")
    if "@" in bucket or "?" in rest:
        raise ConfigError(
            f"{_without_secrets(text)}: credentials and options do not go into the URL; put them into the environment, "
            f"and name the place {NEEDED}"
        )
    parts = [part for part in prefix.split("/") if part]
    if BUCKET.fullmatch(bucket) is None or not parts or {".", ".."} & set(parts):
        raise ConfigError(f"{text}: needed is {NEEDED}, with a bucket and a prefix below it that has no '..'")
    return StoreURL(scheme, bucket, "/".join(parts))


def with_two_slashes(text: str) -> str:
    """`text` in which every ``s3:/BUCKET`` is ``s3://BUCKET``: `pathlib` makes one slash of two, and arguments are
    paths."""
    return ONE_SLASH.sub(r"\1//", text)


def refuse_url(place: str | Path, what: str) -> None:
    """`ConfigError` where a place in a store is named and something local is needed."""
    if is_url(place):
        raise ConfigError(
            f"{what} is {_without_secrets(str(place))}, and a local path is needed; of stores, datasets, runs, pack's "
            "sources and weights can be named (docs/stores.md)"
        )


def _without_secrets(text: str) -> str:
    """The URL without what stands before an @ and after a ?, with two slashes where `pathlib` left one."""
    found = SHAPE.match(text)
    return f"{found[1]}://{found[2].partition('?')[0].rpartition('@')[2]}" if found else text

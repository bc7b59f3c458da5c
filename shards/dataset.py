"""A dataset: a folder of columns and artifacts."""

from pathlib import Path
from typing import TYPE_CHECKING

from viewkit.shards.artifact import IDENTITY, Artifact
from viewkit.shards.column import Column
from viewkit.shards.commands import command_for
from viewkit.shards.errors import ConfigError, DataError, MissingError
from viewkit.shards.files import explained
from viewkit.shards.identity import COLUMN, Identity, and_more
from viewkit.shards.stores.url import is_url, parse_url

if TYPE_CHECKING:
    from viewkit.shards.stores.mirror import Mirror


def run_folder(place: str | Path) -> Path:
    """The folder of a run that is named DATASET/runs/NAME; of a dataset in a store, the one in the cache."""
    if not is_url(place):
        return Path(place)
    url = parse_url(place)
    dataset = url.above(2)
    if dataset is None or url.prefix.split("/")[-2] != "runs":
        raise ConfigError(f"{url}: this is no run; name one as DATASET/runs/NAME")
    return Dataset(str(dataset)).path / "runs" / url.name


class Dataset:
    """Opens columns and artifacts by name. The folder need not exist yet: `pack` creates it.

    path: a folder, or the URL of a place in a store (docs/stores.md); `path` is then the folder in the cache that
    stands for it, as it was when the dataset was opened.
    """

    def __init__(self, path: str | Path) -> None:
        if not str(path).strip():
            raise ConfigError("the path of the dataset is empty; name its folder")
        self._mirror: Mirror | None = None
        if is_url(path):
            from viewkit.shards.stores.mirror import open_mirror

            self._mirror = open_mirror(path)
        self.path = Path(path) if self._mirror is None else self._mirror.root
        self._columns: dict[str, tuple[int, Column]] = {}
        with explained(self.path):
            in_the_way = self.path.exists() and not self.path.is_dir()
        if in_the_way:
            raise DataError(f"{self.path}: a file is in the place of a dataset; a dataset is a folder")

    def begin_writing(self) -> None:
        """Of a dataset in a store: look at what is there now. `ConfigError` where two writers could damage it there."""
        if self._mirror is not None:
            self._mirror.require_conditions()
            self._mirror.refresh()

    def is_column(self, name: str) -> bool:
        return (self.path / name / COLUMN).is_file()

    def is_artifact(self, name: str) -> bool:
        return (self.path / name / IDENTITY).is_file()

    def column(self, name: str) -> Column:
        if not self.is_column(name):
            raise self._missing(name, "column")
        changed = (self.path / name).stat().st_mtime_ns  # of the folder: a new or deleted shard changes it
        if name not in self._columns or self._columns[name][0] != changed:
            self._columns[name] = changed, Column(self.path / name)
        return self._columns[name][1]

    def artifact(self, name: str) -> Artifact:
        """name: path below the dataset, e.g. ``estimator`` or ``runs/moco``."""
        if not self.is_artifact(name):
            raise self._missing(name, "artifact")
        return Artifact(self.path / name, name)

    def columns(self) -> list[str]:
        """Names of the columns, `images` first."""
        names = [path.parent.name for path in self.path.glob(f"*/{COLUMN}")]
        return sorted(names, key=lambda name: (name != "images", name))

    def artifacts(self) -> list[str]:
        """Names of the artifacts: of the dataset, its comparisons, its runs and their evaluations."""
        return sorted(
            path.parent.relative_to(self.path).as_posix()
            for pattern in (f"*/{IDENTITY}", f"compare/*/{IDENTITY}", f"runs/*/{IDENTITY}", f"runs/*/*/{IDENTITY}")
            for path in self.path.glob(pattern)
        )

    def runs(self) -> list[str]:
        """Names of the runs that `pretrain` has finished."""
        return sorted(
            path.parent.name
            for path in self.path.glob(f"runs/*/{IDENTITY}")
            if Artifact(path.parent, path.parent.name).is_complete
        )

    def input_digest(self, name: str, for_stage: str) -> str:
        """Content digest of a complete column or artifact that `for_stage` reads.

        `MissingError` when it is not there, `DataError` when it is unfinished, damaged, or made from other inputs than
        lie in the dataset now.
        """
        if not self.is_column(name) and not self.is_artifact(name):
            raise self._missing(name, "input", f"{for_stage}: ")
        self.check_inputs(name)
        self.require_grown(name, for_stage)
        return self._part(name).digest

    def check_inputs(self, name: str) -> None:
        """`DataError` when `name`, or anything it was made from, was made from other inputs than lie here now."""
        identity = self._part(name).identity
        for source, wanted in identity.inputs.items():
            if not self.is_column(source) and not self.is_artifact(source):
                continue
            if not self._fits(source, wanted):
                command, also = command_for(name, identity.stage), self.made_from(name)
                raise DataError(
                    f"{self.path / name}: it was made from another '{source}' than the one that is there now; "
                    f"delete {self.path / name}{and_more(also)} and rerun '{command}' (its --redo deletes "
                    f"{'them' if also else 'it'}), or bring the old '{source}' back"
                )
            self.check_inputs(source)

    def identity(self, name: str) -> Identity:
        """Of a column or artifact that is there."""
        return self._part(name).identity

    def made_from(self, name: str) -> list[str]:
        """Columns and artifacts that were made from `name`, or from what was, in the order in which they are listed."""
        inputs = {part: set(self._part(part).identity.inputs) for part in (*self.columns(), *self.artifacts())}
        found = {name}
        while more := {part for part, sources in inputs.items() if sources & found} - found:
            found |= more
        return [part for part in inputs if part in found and part != name]

    def staleness(self, name: str) -> str | None:
        """Why `name` no longer fits what is here, e.g. "made from another 'images'"; None where it does."""
        for source, wanted in self._part(name).identity.inputs.items():
            if not self.is_column(source) and not self.is_artifact(source):
                continue
            part = self._part(source)
            if isinstance(part, Column) and len(part.complete_shards()) < part.num_shards:
                return f"made from a '{source}' that is unfinished now"
            if isinstance(part, Artifact) and not part.is_complete:
                return f"made from a '{source}' that is unfinished now"
            if not self._fits(source, wanted):
                return f"made from another '{source}'"
            if self.staleness(source) is not None:
                return f"made from a stale '{source}'"
        return None

    def grown_since(self, name: str) -> list[str]:
        """Inputs of `name` that have got new images since it was made. A column then lacks these images; an artifact
        stays what it was, made from those before."""
        return [
            source
            for source, wanted in self._part(name).identity.inputs.items()
            if self.is_column(source) and self._is_complete(source) and wanted in self.column(source).earlier
        ]

    def require_grown(self, name: str, for_stage: str) -> None:
        """`MissingError` for a column that lacks images which were added since."""
        if not self.is_column(name) or not (grown := self.grown_since(name)):
            return
        command = command_for(name, self.column(name).identity.stage)
        raise MissingError(
            f"{for_stage}: {self.path / name} lacks the images that were added to '{grown[0]}' since it was written; "
            f"rerun '{command}', it does only the new ones"
        )

    def _fits(self, source: str, wanted: str) -> bool:
        """Whether `wanted` is the digest of `source`, or was before it grew."""
        part = self._part(source)
        return part.digest == wanted or (isinstance(part, Column) and wanted in part.earlier)

    def _is_complete(self, column: str) -> bool:
        found = self.column(column)
        return len(found.complete_shards()) == found.num_shards

    def has_inputs(self, name: str) -> bool:
        """Whether `name` was made from other columns or artifacts of this dataset."""
        return any(self.is_column(source) or self.is_artifact(source) for source in self._part(name).identity.inputs)

    def _part(self, name: str) -> Column | Artifact:
        return self.artifact(name) if self.is_artifact(name) else self.column(name)

    def _missing(self, name: str, kind: str, prefix: str = "") -> MissingError:
        if not self.path.is_dir():
            return MissingError(
                f"{prefix}{self.path}: there is no such dataset; make it with '{command_for('images')} {self.path}'"
            )
        command = command_for(name)
        step = f"; make it with '{command} {self.path}'" if command else "; 'viewkit status' lists what is there"
        return MissingError(f"{prefix}{self.path} has no {kind} '{name}'{step}")

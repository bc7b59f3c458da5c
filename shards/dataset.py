"""A dataset: a folder of columns and artifacts."""

from pathlib import Path

from viewkit.shards.artifact import IDENTITY, Artifact
from viewkit.shards.column import Column
from viewkit.shards.commands import command_for
from viewkit.shards.errors import ConfigError, DataError, MissingError
from viewkit.shards.files import explained


class Dataset:
    """Opens columns and artifacts by name. The folder need not exist yet: `pack` creates it."""

    def __init__(self, path: str | Path) -> None:
        if "://" in str(path):
            raise ConfigError(f"{path}: datasets are local folders; mount the store, or copy it to a local disk first")
        if not str(path).strip():
            raise ConfigError("the path of the dataset is empty; name its folder")
        self.path = Path(path)
        self._columns: dict[str, tuple[int, Column]] = {}
        with explained(self.path):
            in_the_way = self.path.exists() and not self.path.is_dir()
        if in_the_way:
            raise DataError(f"{self.path}: a file is in the place of a dataset; a dataset is a folder")

    def is_column(self, name: str) -> bool:
        return (self.path / name / "column.json").is_file()

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
        names = [path.parent.name for path in self.path.glob("*/column.json")]
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
        return self._part(name).digest

    def check_inputs(self, name: str) -> None:
        """`DataError` when `name`, or anything it was made from, was made from other inputs than lie here now."""
        identity = self._part(name).identity
        for source, wanted in identity.inputs.items():
            if not self.is_column(source) and not self.is_artifact(source):
                continue
            if self._part(source).digest != wanted:
                command = command_for(name, identity.stage)
                raise DataError(
                    f"{self.path / name}: it was made from another '{source}' than the one that is there now; "
                    f"delete {self.path / name} and rerun '{command}', or bring the old '{source}' back"
                )
            self.check_inputs(source)

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

"""A local folder with a generator's networks in diffusers' layout: what has to be in it, and the digests of its files.

`PipelineFolder` is declared once a generator (`folders`): which parts it needs, and how their files are called.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

from viewkit.pipelines.generate.hub import HELP, local_folder
from viewkit.shards.errors import DataError


@runtime_checkable
class Folder(Protocol):
    """What `load_part` and encoders need of a folder."""

    path: Path

    def settings(self, part: str) -> dict[str, Any]: ...

    def weights(self, part: str) -> tuple[Path, str | None]: ...

    def digests(self) -> dict[str, str]: ...


class PipelineFolder:
    """Checked on creation: `DataError` says what is not as the generator's folder has to be.

    title: what the folder holds, for people. classes: pipelines that `model_index.json` may name. weight_files: parts
    that hold weights, and the name of their file without suffix. setting_files: other parts, and their file.
    """

    title: ClassVar[str]
    classes: ClassVar[tuple[str, ...]]
    weight_files: ClassVar[Mapping[str, str]]
    setting_files: ClassVar[Mapping[str, str]]

    def __init__(self, path: Path, parts: Iterable[str] | None = None) -> None:
        self.path = local_folder(Path(path), self.weight_files)
        self.parts = tuple(parts if parts is not None else (*self.weight_files, *self.setting_files))
        if not self.path.is_dir():
            raise DataError(f"{self.path}: is no folder; --weights takes a folder or org/name@COMMIT, {HELP}")
        index = self._json(self.path / "model_index.json")
        if (found := index.get("_class_name")) not in self.classes:
            raise DataError(f"{self.path}: holds a {found}, not a {self.classes[0]}; {HELP}")
        self.files = [file for part in self.parts for file in self._files(part)]
        self.check()

    def check(self) -> None:
        """Raise `DataError` where parts do not fit each other."""

    def settings(self, part: str) -> dict[str, Any]:
        """The part's JSON settings."""
        return self._json(self.path / part / self.setting_files.get(part, "config.json"))

    def weights(self, part: str) -> tuple[Path, str | None]:
        """The part's weight file and its variant: full precision where there is a choice."""
        stem = self.weight_files[part]
        for variant in (None, "fp16"):
            path = self.path / part / (f"{stem}.{variant}.safetensors" if variant else f"{stem}.safetensors")
            if path.is_file():
                return path, variant
        raise missing_weights(self.path / part, f"{stem}.safetensors")

    def digests(self) -> dict[str, str]:
        """SHA-256 of every file that is used, by its name in the folder."""
        return {f"weights/{file.relative_to(self.path).as_posix()}": sha256_of(file) for file in sorted(self.files)}

    def _files(self, part: str) -> list[Path]:
        settings = self.path / part / self.setting_files.get(part, "config.json")
        self._json(settings)
        if part == "tokenizer":
            return [file for file in settings.parent.iterdir() if file.suffix in (".json", ".txt")]
        return [settings, self.weights(part)[0]] if part in self.weight_files else [settings]

    def _json(self, path: Path) -> dict[str, Any]:
        try:
            content: dict[str, Any] = json.loads(path.read_bytes())
        except FileNotFoundError as error:
            raise DataError(f"{path}: missing, so this is no complete {self.title} folder; {HELP}") from error
        except (OSError, ValueError) as error:
            raise DataError(f"{path}: cannot be read ({error}); download it anew, {HELP}") from error
        return content


def missing_weights(folder: Path, name: str) -> DataError:
    """The error for a folder without the safetensors file `name`."""
    pickled = [path for suffix in ("*.bin", "*.ckpt", "*.pt", "*.pth") for path in sorted(folder.glob(suffix))]
    if pickled:
        return DataError(f"{pickled[0]}: weights as a pickle, which may run code when loaded; use a copy with {name}")
    return DataError(f"{folder}: holds no {name}; complete the folder, {HELP}")


def load_part(kind: Any, folder: Folder, part: str, **options: Any) -> Any:
    """An instance of `kind` (a class of diffusers or transformers) with the part's weights, all of them.

    Their loaders fill what a file lacks with random numbers and only log it; here that is a `DataError`.
    """
    from safetensors import SafetensorError

    path, variant = folder.weights(part)
    try:
        with _no_progress_bars():
            model, info = kind.from_pretrained(
                folder.path / part,
                variant=variant,
                use_safetensors=True,
                local_files_only=True,
                output_loading_info=True,
                **options,
            )
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        first = str(error).strip().splitlines()[0]
        raise DataError(f"{path}: cannot be loaded ({first}); download it anew, {HELP}") from error
    lacking = sorted(map(str, info["missing_keys"])) + sorted(map(str, info["mismatched_keys"]))
    if lacking:
        raise DataError(f"{path}: lacks {len(lacking)} tensors (first: {lacking[0]}); download it anew, {HELP}")
    return model.eval().requires_grad_(False)


@contextmanager
def _no_progress_bars() -> Iterator[None]:
    """Loading takes seconds, and every worker would draw one bar a part."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def sha256_of(path: Path) -> str:
    """Read once a process, as long as size and time of the last change stay. `DataError` where it cannot be read."""
    try:
        found = path.stat()
        return _sha256_of(path, found.st_size, found.st_mtime_ns)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); check the path") from error


@lru_cache(maxsize=64)
def _sha256_of(path: Path, size: int, modified_ns: int) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

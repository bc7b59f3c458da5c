"""A local folder with a generator's networks in diffusers' layout: which files it must hold, and their digests.

A generator declares its folder as a subclass of `PipelineFolder`: the parts it needs, and how their files are called.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

from viewkit.pipelines.weights.hub import SOURCES, local_folder
from viewkit.shards.artifact import file_digest
from viewkit.shards.errors import ConfigError, DataError


class PipelineFolder:
    """Checked when opened: `DataError` says what is missing, damaged or of another pipeline.

    path: the folder, or ``org/name@COMMIT`` of the hub. parts: those to check and to digest, by default all.

    title: what the folder holds, for messages. classes: pipelines that its `model_index.json` may name; () for a folder
    without one. weight_files: subfolders with weights, and the name of their safetensors file without suffix.
    setting_files: subfolders whose settings are not in `config.json`, and the name of that file.
    """

    title: ClassVar[str]
    classes: ClassVar[tuple[str, ...]] = ()
    weight_files: ClassVar[Mapping[str, str]]
    setting_files: ClassVar[Mapping[str, str]] = {}

    def __init__(self, path: Path, parts: Iterable[str] | None = None) -> None:
        self.path = local_folder(Path(path), self.weight_files)
        self.parts = tuple(parts if parts is not None else (*self.weight_files, *self.setting_files))
        if not self.path.is_dir():
            raise DataError(f"{self.path}: is not a folder; --weights takes a folder or org/name@COMMIT, {SOURCES}")
        if self.classes:
            found = self._json(self.path / "model_index.json").get("_class_name")
            if found not in self.classes:
                raise DataError(f"{self.path}: holds a {found}, not a {self.classes[0]}; {SOURCES}")
        self.files = [file for part in self.parts for file in self._files(part)]
        self.check()

    def check(self) -> None:
        """Raise `DataError` where the parts do not belong together. `parts` may leave some out."""

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
        """SHA-256 of every file that is read, by its name in the folder."""
        return {f"weights/{file.relative_to(self.path).as_posix()}": sha256_of(file) for file in sorted(self.files)}

    def _files(self, part: str) -> list[Path]:
        settings = self.path / part / self.setting_files.get(part, "config.json")
        self._json(settings)
        if part == "tokenizer":
            return [file for file in settings.parent.iterdir() if file.suffix in (".json", ".txt")]
        return [settings, self.weights(part)[0]] if part in self.weight_files else [settings]

    def _json(self, path: Path) -> dict[str, Any]:
        try:
            content = json.loads(path.read_bytes())
        except FileNotFoundError as error:
            raise DataError(f"{path}: missing, so this is no complete {self.title} folder; {SOURCES}") from error
        except (OSError, ValueError) as error:
            raise DataError(f"{path}: cannot be read ({error}); download it again, {SOURCES}") from error
        if not isinstance(content, dict):
            raise DataError(f"{path}: holds no JSON object; download it again, {SOURCES}")
        return content


def missing_weights(folder: Path, name: str) -> DataError:
    """The error for a folder without the safetensors file `name`."""
    pickled = [path for suffix in ("*.bin", "*.ckpt", "*.pt", "*.pth") for path in sorted(folder.glob(suffix))]
    if pickled:
        return DataError(f"{pickled[0]}: weights as a pickle, which may run code when loaded; use a copy with {name}")
    return DataError(f"{folder}: holds no {name}; complete the folder, {SOURCES}")


def load_part(kind: Any, folder: PipelineFolder, part: str, **options: Any) -> Any:
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
        raise DataError(f"{path}: cannot be loaded ({first}); download it again, {SOURCES}") from error
    lacking = sorted(map(str, info["missing_keys"])) + sorted(map(str, info["mismatched_keys"]))
    if lacking:
        raise DataError(f"{path}: lacks {len(lacking)} tensors (first: {lacking[0]}); download it again, {SOURCES}")
    return model.eval().requires_grad_(False)


@contextmanager
def _no_progress_bars() -> Iterator[None]:
    """Loading takes seconds, and every worker would show a bar for each part."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def require_folder(weights: Path | None, what: str) -> Path:
    """The path given with --weights; `ConfigError` where there is none. what: what needs it, e.g. "generator 'x'"."""
    if weights is None:
        raise ConfigError(f"{what} needs its weights; add --weights FOLDER ({SOURCES})")
    return weights


def sha256_of(path: Path) -> str:
    """`file_digest`, computed once per process while size and time of the last change stay the same.

    Weights are gigabytes and digested by every stage of a command; an artifact's files are digested each time,
    since that is their integrity check. `DataError` where the file cannot be read.
    """
    try:
        found = path.stat()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); check the path") from error
    return _sha256_of(path, found.st_size, found.st_mtime_ns)


@lru_cache(maxsize=64)
def _sha256_of(path: Path, size: int, modified_ns: int) -> str:
    return file_digest(path)

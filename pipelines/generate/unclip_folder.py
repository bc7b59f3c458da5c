"""A local folder with Stable unCLIP in diffusers' layout: what has to be in it, and the digest of every file used."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from viewkit.shards.errors import DataError

CLASSES = ("StableUnCLIPImg2ImgPipeline", "StableUnCLIPPipeline")
WEIGHTS = {
    "image_encoder": "model",
    "image_normalizer": "diffusion_pytorch_model",
    "text_encoder": "model",
    "unet": "diffusion_pytorch_model",
    "vae": "diffusion_pytorch_model",
}
"""Parts that hold weights, and the name of their file without suffix."""
SETTINGS = {
    "feature_extractor": "preprocessor_config.json",
    "image_noising_scheduler": "scheduler_config.json",
    "scheduler": "scheduler_config.json",
    "tokenizer": "tokenizer_config.json",
}
ENCODER_PARTS = ("image_encoder", "feature_extractor")
"""Parts that the image encoder alone needs."""
PARTS = (*WEIGHTS, *SETTINGS)
HELP = "docs/generators.md says where to get the weights"


class UnclipFolder:
    """Checked on creation: `DataError` says what is not as a Stable unCLIP folder has to be."""

    def __init__(self, path: Path, parts: Iterable[str] = PARTS) -> None:
        self.path = Path(path)
        self.parts = tuple(parts)
        if not self.path.is_dir():
            raise DataError(f"{self.path}: there is no such folder; --weights takes a local folder, {HELP}")
        index = self._json(self.path / "model_index.json")
        found = index.get("_class_name")
        if found not in CLASSES:
            raise DataError(f"{self.path}: holds a {found}, not a {CLASSES[0]}; {HELP}")
        self.files = [file for part in self.parts for file in self._files(part)]
        if {"image_encoder", "image_normalizer", "unet"} <= set(self.parts):
            self._check_widths()

    def settings(self, part: str) -> dict[str, Any]:
        """The part's JSON settings."""
        return self._json(self.path / part / SETTINGS.get(part, "config.json"))

    def weights(self, part: str) -> tuple[Path, str | None]:
        """The part's weight file and its variant: full precision where there is a choice."""
        stem = WEIGHTS[part]
        for variant in (None, "fp16"):
            path = self.path / part / (f"{stem}.{variant}.safetensors" if variant else f"{stem}.safetensors")
            if path.is_file():
                return path, variant
        pickled = sorted(self.path.joinpath(part).glob("*.bin"))
        if pickled:
            raise DataError(
                f"{pickled[0]}: weights as a pickle, which may run code when loaded; use a copy with {stem}.safetensors"
            )
        raise DataError(f"{self.path / part}: holds no {stem}.safetensors; complete the folder, {HELP}")

    def digests(self) -> dict[str, str]:
        """SHA-256 of every file that is used, by its name in the folder."""
        return {f"weights/{file.relative_to(self.path).as_posix()}": _sha256(file) for file in sorted(self.files)}

    def _files(self, part: str) -> list[Path]:
        if part == "tokenizer":
            self._json(self.path / part / SETTINGS[part])
            return [file for file in self.path.joinpath(part).iterdir() if file.suffix in (".json", ".txt")]
        settings = self.path / part / SETTINGS.get(part, "config.json")
        self._json(settings)
        return [settings, self.weights(part)[0]] if part in WEIGHTS else [settings]

    def _check_widths(self) -> None:
        width = self.settings("image_encoder").get("projection_dim")
        normaliser = self.settings("image_normalizer").get("embedding_dim")
        unet = self.settings("unet")
        labels = unet.get("projection_class_embeddings_input_dim")
        if unet.get("class_embed_type") != "projection" or labels is None:
            raise DataError(f"{self.path / 'unet'}: takes no image embedding, so it is no Stable unCLIP; {HELP}")
        if not width == normaliser == labels / 2:
            raise DataError(
                f"{self.path}: parts of different pipelines: image_encoder gives {width} numbers, image_normalizer "
                f"expects {normaliser}, and unet {labels} (twice as many are needed); download the folder anew, {HELP}"
            )

    @staticmethod
    def _json(path: Path) -> dict[str, Any]:
        try:
            content: dict[str, Any] = json.loads(path.read_bytes())
        except FileNotFoundError as error:
            raise DataError(f"{path}: missing, so this is no complete Stable unCLIP folder; {HELP}") from error
        except (OSError, ValueError) as error:
            raise DataError(f"{path}: cannot be read ({error}); download it anew, {HELP}") from error
        return content


def _sha256(path: Path) -> str:
    found = path.stat()
    return _sha256_of(path, found.st_size, found.st_mtime_ns)


@lru_cache(maxsize=64)
def _sha256_of(path: Path, size: int, modified_ns: int) -> str:
    """Read once a process, as long as size and time of the last change stay."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def load_part(kind: Any, folder: UnclipFolder, part: str, **options: Any) -> Any:
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

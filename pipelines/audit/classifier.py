"""Class probabilities of views by any timm classifier whose weights lie on this machine. Nothing is downloaded."""

import hashlib
import json
from pathlib import Path
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from viewkit.pipelines.encoders.encoder import FeatureExtractor
from viewkit.pipelines.views.policy import colour
from viewkit.shards.errors import ConfigError, DataError
from viewkit.shards.files import read_file

WEIGHTS, FACTS = "model.safetensors", "config.json"


class ClassifierFiles:
    """A folder with config.json and model.safetensors, as timm saves models, or a .safetensors file and an `arch`."""

    def __init__(self, path: Path, arch: str | None) -> None:
        self.facts: dict[str, Any] = {}
        self.weights = path
        if path.is_dir():
            self.weights = path / WEIGHTS
            facts = json_object(path / FACTS)
            cfg, named = facts.get("pretrained_cfg") or {}, facts.get("architecture")
            if not isinstance(cfg, dict) or not isinstance(named, str | None):
                raise DataError(f"{path / FACTS}: not as timm writes it; save the model again with timm")
            self.facts, arch = cfg, arch or named
        if self.weights.suffix != ".safetensors":
            raise DataError(
                f"{path}: --classifier takes a .safetensors file, or a folder with {WEIGHTS} and {FACTS}; other weight "
                "files may run code when loaded: save the model again with safetensors"
            )
        if not self.weights.is_file():
            raise DataError(f"{self.weights}: there is no such file; --classifier takes weights on this machine")
        if not arch:
            raise ConfigError(f"audit: {path} does not say its architecture; give --classifier-arch, a name of timm's")
        self.arch: str = arch

    def digests(self) -> dict[str, str]:
        """Digest of what decides the probabilities."""
        facts = json.dumps([self.arch, self.facts], sort_keys=True).encode()
        with open(self.weights, "rb") as file:
            weights = hashlib.file_digest(file, "sha256").hexdigest()
        return {"classifier": hashlib.sha256(facts + weights.encode()).hexdigest()}

    def load(self, device: str) -> FeatureExtractor:
        """The classifier, whose features are probabilities. `ConfigError` or `DataError` say what does not fit."""
        import timm
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        if not timm.is_model(self.arch):
            raise ConfigError(f"audit: classifier_arch is '{self.arch}', which is no model of timm")
        try:
            tensors = load_file(self.weights)
        except (SafetensorError, OSError, ValueError) as error:
            raise DataError(f"{self.weights}: not a safetensors file: {error}") from error
        cfg = {**timm.get_pretrained_cfg(self.arch, allow_unregistered=True).to_dict(), **self.facts}
        head = cfg.get("classifier")
        bias = tensors.get(f"{head}.bias") if isinstance(head, str) else None
        if bias is None or len(bias) < 2:
            raise DataError(f"{self.weights}: holds no classifier '{head}' of two classes or more for '{self.arch}'")
        model = timm.create_model(self.arch, pretrained=False, num_classes=len(bias))
        try:
            model.load_state_dict(tensors)
        except RuntimeError as error:
            first = " ".join(str(error).split())[:200]
            raise DataError(f"{self.weights}: weights of another network than '{self.arch}': {first}") from error
        probabilities = Probabilities(model).eval().requires_grad_(False)
        side_px = int(cfg["input_size"][1])
        return FeatureExtractor(probabilities, side_px, colour(cfg["mean"]), colour(cfg["std"]), device)


class Probabilities(nn.Module):
    """Softmax of a classifier's outputs, in fp32."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, views: Float[Tensor, "n 3 s s"]) -> Float[Tensor, "n q"]:
        logits: Tensor = self.model(views)
        return logits.float().softmax(dim=1)


def json_object(path: Path) -> dict[str, Any]:
    """`DataError` when the file is not there or holds no JSON object."""
    if not path.is_file():
        raise DataError(f"{path}: missing; a folder with timm's {FACTS} and {WEIGHTS} is needed")
    try:
        found = json.loads(read_file(path))
    except ValueError as error:
        raise DataError(f"{path}: not JSON: {error}") from error
    if not isinstance(found, dict):
        raise DataError(f"{path}: holds no JSON object")
    return found

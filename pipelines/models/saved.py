"""A trained backbone on disk: weights under timm's names, and the few facts needed to use them."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from viewkit.pipelines.models.architectures import Init
from viewkit.pipelines.models.backbone import Backbone
from viewkit.pipelines.models.backbones import create_backbone
from viewkit.pipelines.models.checkpoint import load_tensors, load_weights, save_tensors
from viewkit.shards.artifact import Artifact
from viewkit.shards.errors import DataError
from viewkit.shards.files import read_file, write_atomic

WEIGHTS = "encoder.safetensors"
FACTS = "encoder.json"


@dataclass(frozen=True, kw_only=True)
class EncoderFacts:
    """What `create_backbone` needs to make the network again, and what its views must look like.

    seed: of the weights it began with, so that the untrained encoder can be made too. mean, std: of RGB in 0-1.
    """

    arch: str
    side_px: int
    init: Init
    num_heads: int | None
    seed: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]

    def fresh(self) -> Backbone:
        """The encoder before training."""
        return create_backbone(self.arch, self.side_px, init=self.init, num_heads=self.num_heads, seed=self.seed)


def find_file(source: Artifact | Path, name: str) -> Path:
    """A file of an artifact, whose digest is then checked, or of a plain folder."""
    return source.path(name) if isinstance(source, Artifact) else source / name


def save_encoder(folder: Path, backbone: Backbone, facts: EncoderFacts) -> None:
    """Write `encoder.safetensors` (timm's names) and `encoder.json` into `folder`."""
    save_tensors(folder / WEIGHTS, backbone.trunk.state_dict())
    write_atomic(folder / FACTS, json.dumps(asdict(facts), indent=1, sort_keys=True).encode() + b"\n")


def load_encoder(source: Artifact | Path) -> tuple[Backbone, EncoderFacts]:
    """The trained backbone, on the CPU and in evaluation mode.

    source: ``dataset.artifact("runs/NAME")``, whose digests are checked, or a folder holding the two files.
    """
    facts_path, weights_path = find_file(source, FACTS), find_file(source, WEIGHTS)
    facts = read_facts(facts_path)
    backbone = facts.fresh()
    weights, _ = load_tensors(weights_path)
    load_weights(backbone.trunk, weights, weights_path)
    return backbone.eval().requires_grad_(False), facts


def read_facts(path: Path) -> EncoderFacts:
    """`DataError` when the file does not hold an encoder's facts."""
    try:
        content = json.loads(read_file(path))
        if not isinstance(content, dict):
            raise TypeError("not a JSON object")
        if "start" in content:  # the key of older files
            content["init"] = content.pop("start")
        red, green, blue = content.pop("mean")
        mean = (float(red), float(green), float(blue))
        red, green, blue = content.pop("std")
        return EncoderFacts(**content, mean=mean, std=(float(red), float(green), float(blue)))
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: not an encoder's facts ({error}); rerun 'viewkit pretrain'") from error

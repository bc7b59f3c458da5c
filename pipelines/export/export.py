"""A run's backbone as one file under the names of timm, torchvision or Detectron2, with a JSON file of facts beside."""

import hashlib
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import nn

from viewkit.pipelines.export.detection import detectron2_options, detectron2_weights, pth_bytes
from viewkit.pipelines.export.rebuild import rebuild_of, torchvision_name
from viewkit.pipelines.models.backbone import Backbone
from viewkit.pipelines.models.saved import EncoderFacts, load_encoder
from viewkit.shards.artifact import IDENTITY, Artifact, refuse_inside
from viewkit.shards.codecs import encode_json
from viewkit.shards.errors import ConfigError, DataError, RefusedError
from viewkit.shards.files import make_folder, read_file, write_atomic

NAMES = ("timm", "torchvision", "detectron2")
ENDINGS = {"detectron2": ".pth"}
"""Of the file, by its names, where it is not ``.safetensors``: Detectron2 reads no such files."""
FEATURES = {"vit": "what timm calls pre-logits, mostly the class token after the last norm", "resnet": "global average"}


def export_encoder(run: Path, to: Path, names: str = "timm") -> dict[str, Any]:
    """Write `to` and the facts beside it, ``NAME.json`` for ``NAME.safetensors`` or ``NAME.pth``; return the facts.

    run: folder of a finished run. The same run gives the same bytes, so a repeated export changes nothing. Raises
    `ConfigError` for an ending or names that cannot be, `DataError` for what is no finished run, and `RefusedError`
    where another file of that name would be overwritten.
    """
    if names not in NAMES:
        raise ConfigError(f"export: --names is {names!r}; choose one of {', '.join(NAMES)}")
    ending = ENDINGS.get(names, ".safetensors")
    if to.suffix != ending:
        kind = "file of tensors that Detectron2 reads" if names in ENDINGS else "safetensors file"
        raise ConfigError(f"export: --to is {to}; the weights are a {kind}, give a name ending in {ending}")
    artifact = find_run(run)
    backbone, facts = load_encoder(artifact)
    values = describe(backbone, facts, names)
    if names == "detectron2":
        values["detectron2"] = detectron2_options(facts)
        weights = pth_bytes(detectron2_weights(backbone.trunk))
    else:
        weights = save(contiguous(backbone.trunk), {"format": "pt"})
    values |= {
        "run": artifact.name,
        "run_digest": artifact.digest,
        "sha256": hashlib.sha256(weights).hexdigest(),
    }
    files = {to: weights, to.with_suffix(".json"): encode_json(values)}
    for path, content in files.items():
        if path.exists() and read_file(path) != content:
            raise RefusedError(f"export: {path} is there and holds something else; delete it or choose another --to")
    refuse_inside(to, "export")
    make_folder(to.parent)
    for path, content in files.items():
        write_atomic(path, content)
    return values


def find_run(folder: Path) -> Artifact:
    """The finished run in `folder`; `DataError` when there is none."""
    artifact = Artifact(folder, folder.name)
    if not (folder / IDENTITY).is_file():
        raise DataError(f"export: {folder} is no run; give the folder of one, DATASET/runs/NAME")
    if (stage := artifact.identity.stage) != "pretrain":
        raise DataError(
            f"export: {folder} was written by 'viewkit {stage}'; give the folder of a run, DATASET/runs/NAME"
        )
    return artifact


def contiguous(trunk: nn.Module) -> dict[str, Any]:
    """Weights in the plain order of their axes: safetensors keeps no memory format."""
    return {name: tensor.detach().cpu().contiguous() for name, tensor in trunk.state_dict().items()}


def describe(backbone: Backbone, facts: EncoderFacts, names: str) -> dict[str, Any]:
    """Everything that a program without viewkit needs to use the weights, as JSON values."""
    return {
        "arch": facts.arch,
        "names": names,
        "torchvision_model": torchvision_name(facts) if names == "torchvision" else None,
        **rebuild_of(facts, backbone.trunk).values(),
        "num_features": backbone.num_features,
        "features": FEATURES[backbone.kind],
        "memory_format": "channels_last" if backbone.kind == "resnet" else "contiguous",
        "side_px": facts.side_px,
        "mean": list(facts.mean),
        "std": list(facts.std),
        "input": "RGB in 0-1, less mean, over std, per channel; [n 3 side_px side_px]",
    }

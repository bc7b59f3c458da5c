"""A ResNet's weights under Detectron2's names, and how its inputs must be configured there."""

import io
import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from viewkit.pipelines.export.rebuild import TORCHVISION
from viewkit.pipelines.models.saved import EncoderFacts
from viewkit.shards.errors import ConfigError

DEPTHS = {"resnet18": 18, "resnet34": 34, "resnet50": 50, "resnet101": 101, "resnet152": 152}
BASIC_DEPTHS = (18, 34)
"""Of basic blocks, whose first stage has 64 channels; Detectron2's default is that of bottlenecks, 256."""
NAMES = (
    (re.compile(r"^conv1\."), "stem.conv1."),
    (re.compile(r"^bn1\."), "stem.conv1.norm."),
    (re.compile(r"^layer(\d)\."), lambda found: f"res{int(found[1]) + 1}."),
    (re.compile(r"\.bn(\d)\."), r".conv\1.norm."),
    (re.compile(r"\.downsample\.0\."), ".shortcut."),
    (re.compile(r"\.downsample\.1\."), ".shortcut.norm."),
)
"""Patterns of timm's and torchvision's names -> Detectron2's, applied in turn."""


def detectron2_name(name: str) -> str:
    """E.g. ``layer1.0.bn2.weight`` -> ``res2.0.conv2.norm.weight``."""
    for pattern, other in NAMES:
        name = pattern.sub(other, name)
    return name


def detectron2_weights(trunk: nn.Module) -> dict[str, Tensor]:
    """The trunk's tensors by Detectron2's names; counters of batches, which it does not have, are left out."""
    state = {name: tensor.detach().cpu().contiguous() for name, tensor in trunk.state_dict().items()}
    return {detectron2_name(name): each for name, each in state.items() if not name.endswith("num_batches_tracked")}


def pth_bytes(weights: Mapping[str, Tensor]) -> bytes:
    """A plain ``.pth`` file of tensors, which `torch.load` reads with ``weights_only=True``."""
    file = io.BytesIO()
    torch.save(dict(weights), file)
    return file.getvalue()


def detectron2_options(facts: EncoderFacts) -> dict[str, Any]:
    """What a Detectron2 config must say for these weights. `ConfigError` for a network that it does not build."""
    if facts.arch not in DEPTHS:
        which = "the stem is another one" if facts.arch.removesuffix("_cifar") in TORCHVISION else "no such ResNet"
        raise ConfigError(
            f"export: --names detectron2 is for {', '.join(DEPTHS)}, and the run is of '{facts.arch}' ({which}); "
            "leave out --names for timm's names"
        )
    return {
        "MODEL.RESNETS.DEPTH": DEPTHS[facts.arch],
        **({"MODEL.RESNETS.RES2_OUT_CHANNELS": 64} if DEPTHS[facts.arch] in BASIC_DEPTHS else {}),
        "MODEL.RESNETS.STRIDE_IN_1X1": False,
        "INPUT.FORMAT": "RGB",
        "MODEL.PIXEL_MEAN": [255 * value for value in facts.mean],
        "MODEL.PIXEL_STD": [255 * value for value in facts.std],
    }

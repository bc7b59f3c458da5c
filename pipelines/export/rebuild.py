"""How other programs make the network of an encoder again: the call of timm, and torchvision's name for it."""

from dataclasses import asdict, dataclass
from typing import Any

from torch import nn

from viewkit.pipelines.models.architectures import RESNETS, VITS
from viewkit.pipelines.models.saved import EncoderFacts
from viewkit.shards.errors import ConfigError

OWN_VIT, OWN_RESNET = "vit_tiny_patch16_224", {"resnet50_cifar": "resnet50"}
"""The models of timm from which viewkit's own architectures are built, by overriding what differs."""
TORCHVISION = (
    "resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "resnext50_32x4d", "resnext101_32x8d",
    "resnext101_64x4d", "wide_resnet50_2", "wide_resnet101_2",
)  # fmt: skip
"""ResNets that timm and torchvision build alike, under the same name."""


@dataclass(frozen=True)
class Stem:
    """The first convolution where it is not that of the architecture; there is no max-pool then."""

    kernel_px: int
    stride: int
    padding: int


@dataclass(frozen=True)
class Rebuild:
    """``timm.create_model(model, num_classes=0, **kwargs)``, then `stem` in the place of conv1 and max-pool."""

    model: str
    kwargs: dict[str, Any]
    stem: Stem | None

    def values(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "timm_model": self.model,
            "timm_kwargs": self.kwargs,
            "stem": None if self.stem is None else {**asdict(self.stem), "max_pool": False},
        }


def rebuild_of(facts: EncoderFacts, trunk: nn.Module) -> Rebuild:
    """How timm makes the network of `trunk`, whose side and number of heads are the encoder's own."""
    if facts.arch in RESNETS:
        stride = 2 if facts.arch == "resnet10_narrow" else 1
        options = {name: list(value) for name, value in RESNETS[facts.arch].items()}
        return Rebuild(OWN_RESNET.get(facts.arch, "resnet18"), options, Stem(3, stride, 1))
    blocks: Any = getattr(trunk, "blocks", None)
    if blocks is None:
        return Rebuild(facts.arch, {}, None)
    shape = {**VITS.get(facts.arch, {}), "num_heads": blocks[0].attn.num_heads}
    return Rebuild(OWN_VIT if facts.arch in VITS else facts.arch, {"img_size": facts.side_px, **shape}, None)


def torchvision_name(facts: EncoderFacts) -> str:
    """Torchvision's name of the architecture; its model then lacks nothing but ``fc``.

    viewkit's CIFAR ResNets are torchvision's with another stem. Raises `ConfigError` for any other architecture.
    """
    name = facts.arch.removesuffix("_cifar")
    if name not in TORCHVISION:
        raise ConfigError(
            f"export: --names torchvision is for ResNets that torchvision has ({', '.join(TORCHVISION)}), and the run "
            f"is of '{facts.arch}'; leave out --names for timm's names"
        )
    return name

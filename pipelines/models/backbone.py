"""What every encoder of viewkit can do: features, one tap per block for early exits, and patch tokens."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal

from jaxtyping import Float
from torch import Tensor, nn

Encoded = tuple[Tensor, ...]
"""What a backbone gives for one view of every row: tensors whose first axis is the rows, features [n d] first."""


class Backbone(nn.Module, ABC):
    """A timm network (`trunk`, whose weights keep timm's names) without a classifier.

    num_features: width d of the features. exit_widths: width of each tap; taps of a ResNet differ, so they come as a
    list. side_px: side of the views it was made for.
    """

    kind: ClassVar[Literal["vit", "resnet"]]

    def __init__(self, trunk: Any, name: str, side_px: int, *, num_features: int, exit_widths: tuple[int, ...]) -> None:
        super().__init__()
        self.trunk = trunk
        self.name = name
        self.side_px = side_px
        self.num_features = num_features
        self.exit_widths = exit_widths

    @property
    def num_exits(self) -> int:
        return len(self.exit_widths)

    @abstractmethod
    def forward(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d"]:
        """Features: the normalised class token, or the global average."""

    @abstractmethod
    def exits(self, x: Float[Tensor, "n c h w"]) -> tuple[Float[Tensor, "n d"], list[Float[Tensor, "n _"]]]:
        """Features, and the class token (or the global average) after every block, before any norm."""

    @abstractmethod
    def tokens_and_features(self, x: Float[Tensor, "n c h w"]) -> tuple[Float[Tensor, "n t d"], Float[Tensor, "n d"]]:
        """Patch tokens after the last norm (for a ResNet the positions of the last feature map), in reading order; and
        the features that `forward` gives."""

    def tokens(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n t d"]:
        return self.tokens_and_features(x)[0]

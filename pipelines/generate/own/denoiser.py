"""What `viewkit generator` trains: a network that finds the velocity in noised images, and its moving average."""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from viewkit.pipelines.models.backbone import Encoded
from viewkit.pipelines.models.compiling import compile_privately
from viewkit.pipelines.models.momentum import momentum_copy
from viewkit.pipelines.training.trainable import Trainable

LONGEST_GRADIENT = 1.0
"""Norm to which a step's gradient is cut."""
EMA_DECAY, EMA_POWER = 0.999, 0.75
"""Largest decay of the average; after s steps it is at most 1 - (1 + s) ^ -0.75, so that it forgets the start."""


class Denoiser(Trainable):
    """unet: learns. average: the moving average of its weights, by diffusers' `EMAModel`; what is kept and sampled."""

    slower: ClassVar[str] = "lower --lr"

    def __init__(self, unet: Any, *, compiled: bool = False) -> None:
        from diffusers.training_utils import EMAModel

        super().__init__()
        self.unet, self.average = unet, momentum_copy(unet)
        self.ema = EMAModel([], decay=EMA_DECAY, use_ema_warmup=True, power=EMA_POWER, foreach=True)
        self.network = compile_privately(unet.forward) if compiled else unet.forward

    def loss(
        self,
        views: Sequence[Tensor],
        weights: Float[Tensor, " n"] | None = None,
        targets: Sequence[Encoded | None] | None = None,
    ) -> Float[Tensor, ""]:
        """Mean squared error of the velocity; what the arguments hold says `Noiser.batch`."""
        return velocity_error(self.network, views, targets)

    @torch.no_grad()
    def average_loss(self, views: Sequence[Tensor], targets: Sequence[Encoded | None] | None) -> Float[Tensor, ""]:
        """The same loss of the moving average."""
        return velocity_error(self.average.forward, views, targets)

    def before_update(self) -> None:
        torch.nn.utils.clip_grad_norm_(self.unet.parameters(), LONGEST_GRADIENT)

    def after_step(self) -> None:
        """Moves the average. It is told the step, and given the weights, that a checkpoint holds."""
        self.ema.shadow_params = list(self.average.parameters())
        self.ema.optimization_step = self.step - 1
        self.ema.step(self.unet.parameters())


def velocity_error(
    network: Any, views: Sequence[Float[Tensor, "n c s s"]], targets: Sequence[Encoded | None] | None
) -> Float[Tensor, ""]:
    """Mean over all values of the squared error of the velocity, in fp32."""
    assert targets is not None and targets[0] is not None
    (noised, velocity), (time, condition) = views, targets[0]
    found = network(noised, time, None, class_labels=condition, return_dict=False)[0]
    return (found.float() - velocity).square().mean()

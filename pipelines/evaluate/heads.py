"""Linear classifiers that are trained side by side, as one tensor, each with its own learning rate and images."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

MOMENTUM = 0.9


class LinearHeads:
    """h softmax classifiers of width d and c classes under SGD with momentum 0.9 and no weight decay.

    All begin with the same weights [c d] and no bias. They share nothing but the images they look at, so each is what
    it would be if it were trained alone.
    """

    def __init__(self, first: Float[Tensor, "c d"], num_heads: int) -> None:
        self.weight = first.repeat(num_heads, 1, 1)  # h c d
        self.bias = first.new_zeros(num_heads, len(first))  # h c
        self._weight_velocity = torch.zeros_like(self.weight)
        self._bias_velocity = torch.zeros_like(self.bias)

    def scores(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "h n c"]:
        h, c, d = self.weight.shape
        flat = x @ self.weight.reshape(h * c, d).T  # n (h c)
        return flat.reshape(len(x), h, c).transpose(0, 1) + self.bias[:, None]

    def step(
        self,
        x: Float[Tensor, "n d"],
        labels: Int[Tensor, " n"],
        counted: Float[Tensor, "h n"],
        rates: Float[Tensor, " h"],
    ) -> None:
        """One step on the mean cross-entropy of each head's own rows.

        counted: 1 where a head learns from a row, 0 where it does not; without any it sees a gradient of 0. The
        gradient of the cross-entropy to the scores is softmax less one-hot.
        """
        share = counted / counted.sum(dim=1, keepdim=True).clamp(min=1)
        g = self.scores(x).softmax(dim=2)  # h n c
        g[:, torch.arange(len(x), device=x.device), labels] -= 1
        g = g * share[:, :, None]
        self._weight_velocity.mul_(MOMENTUM).add_(g.transpose(1, 2) @ x)
        self._bias_velocity.mul_(MOMENTUM).add_(g.sum(dim=1))
        self.weight -= rates[:, None, None] * self._weight_velocity
        self.bias -= rates[:, None] * self._bias_velocity

    def finite(self) -> list[bool]:
        """Which heads have not diverged."""
        return [bool(w.isfinite().all() and b.isfinite().all()) for w, b in zip(self.weight, self.bias, strict=True)]

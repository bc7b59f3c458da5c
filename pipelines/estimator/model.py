"""What `viewkit estimator` trains: MoCo v3 with an early exit on every block (VS-2FI, sec. 3.1, 3.2 and 4.1)."""

import torch
from jaxtyping import Float
from torch import Tensor

from viewkit.pipelines.losses.exit_info_nce import exit_info_nce
from viewkit.pipelines.losses.info_nce import symmetric_info_nce
from viewkit.pipelines.models.backbone import Backbone
from viewkit.pipelines.models.estimator import EstimatorNetwork
from viewkit.pipelines.models.heads import moco_v3_predictor
from viewkit.pipelines.models.initial import seeded_weights
from viewkit.pipelines.models.momentum import momentum_copy, move_towards
from viewkit.pipelines.training.framework import Framework
from viewkit.pipelines.training.schedules import cosine_momentum


class ExitMoCoV3(Framework):
    """loss = MoCo v3's on the top + the sum over blocks of eq. 4, with the same tau and the same factor 2 tau.

    Queries of an exit come from the base encoder, its keys from the exit of the momentum encoder, as at the top; exits
    have no predictor (the paper: "single-layer"). Exits share no weight with each other or the backbone and stand
    behind stop-gradient, so the sum trains each as it would be trained alone.
    steps: of the whole training, over which the momentum rises to 1.
    """

    def __init__(
        self, network: EstimatorNetwork, *, hidden: int, dim: int, tau: float, momentum: float, steps: int, seed: int
    ) -> None:
        super().__init__()
        self.network = network
        with seeded_weights(seed + 2):
            self.predictor = moco_v3_predictor(dim, hidden, end_norm=network.backbone.kind == "vit")
        self.momentum_network = momentum_copy(network)
        self.tau, self.momentum, self.steps = tau, momentum, steps
        self.exit_losses: Tensor | None = None

    @property
    def encoder(self) -> Backbone:
        return self.network.backbone

    def loss(
        self,
        views1: Float[Tensor, "n 3 s s"],
        views2: Float[Tensor, "n 3 s s"],
        weights: Float[Tensor, " n"] | None = None,
    ) -> Float[Tensor, ""]:
        z1, exits1 = self.network(views1)
        z2, exits2 = self.network(views2)
        with torch.no_grad():
            k1, exit_keys1 = self.momentum_network(views1)
            k2, exit_keys2 = self.momentum_network(views2)
        top = symmetric_info_nce(self.predictor(z1), self.predictor(z2), k1, k2, self.tau, weights=weights)
        exits = exit_info_nce(exits1, exit_keys2, self.tau) + exit_info_nce(exits2, exit_keys1, self.tau)  # e
        self.outputs = z1.detach()
        self.exit_losses = exits.detach()
        self.top_loss = top.detach()
        return top + exits.sum()

    def after_step(self) -> None:
        """Moves the momentum encoder: before the next keys, as MoCo v3 does."""
        move_towards(
            self.momentum_network, self.network, cosine_momentum(self.step, steps=self.steps, start=self.momentum)
        )

    def numbers(self) -> dict[str, float]:
        """loss_top and loss_exit_1 ... of the last batch."""
        if self.exit_losses is None:
            return {}
        exits = {f"loss_exit_{level}": value for level, value in enumerate(self.exit_losses.tolist(), start=1)}
        return {"loss_top": float(self.top_loss), **exits}

"""What `viewkit estimator` trains: MoCo v3 with an early exit on every block (VS-2FI, sec. 3.1, 3.2 and 4.1)."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from viewkit.pipelines.losses.info_nce import exit_info_nce, symmetric_info_nce
from viewkit.pipelines.models.backbone import Backbone, Encoded
from viewkit.pipelines.models.estimator import EstimatorNetwork
from viewkit.pipelines.models.heads import moco_v3_predictor
from viewkit.pipelines.models.initial import seeded_weights
from viewkit.pipelines.models.momentum import momentum_copy, move_towards
from viewkit.pipelines.training.framework import Framework, Outputs
from viewkit.pipelines.training.schedules import cosine_momentum


@dataclass(frozen=True)
class ExitOutputs(Outputs):
    """Beside the top: what every exit of the learning and of the momentum network gives, [n e d]."""

    exits: Float[Tensor, "n e d"]
    exit_keys: Float[Tensor, "n e d"]


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

    def encode(self, views: Float[Tensor, "n 3 s s"]) -> Encoded:
        features, taps = self.network.backbone.exits(views)
        return (features, *(tap.detach() for tap in taps))

    def encode_target(self, views: Float[Tensor, "n 3 s s"]) -> Encoded:
        features, taps = self.momentum_network.backbone.exits(views)
        return (features, *taps)

    def project(self, encoded: Encoded | None, target: Encoded | None) -> ExitOutputs:
        assert encoded is not None and target is not None
        z = self.network.projector(encoded[0])
        with torch.no_grad():
            key = self.momentum_network.projector(target[0])
            exit_keys = self.momentum_network.exits(target[1:])
        return ExitOutputs(
            z=z, query=self.predictor(z), key=key, exits=self.network.exits(encoded[1:]), exit_keys=exit_keys
        )

    def pair_losses(self, one: Outputs, other: Outputs) -> Float[Tensor, " n"]:
        assert isinstance(one, ExitOutputs) and isinstance(other, ExitOutputs)
        assert one.query is not None and other.query is not None and one.key is not None and other.key is not None
        top = symmetric_info_nce(one.query, other.query, one.key, other.key, self.tau)
        exits = exit_info_nce(one.exits, other.exit_keys, self.tau) + exit_info_nce(
            other.exits, one.exit_keys, self.tau
        )  # n e
        self.exit_losses = exits.detach().mean(dim=0)
        self.top_loss = top.detach().mean()
        return top + exits.sum(dim=1)

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

"""The frozen estimator: what `viewkit estimator` trained, for the stages that compare views by its head and exits.

Its backbone alone, as an encoder, is `encoders.open.open_encoder("estimator", dataset)`.
"""

import json
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from viewkit.pipelines.models.architectures import Init
from viewkit.pipelines.models.backbones import create_backbone
from viewkit.pipelines.models.checkpoint import load_tensors, load_weights
from viewkit.pipelines.models.exits import ExitProjectors, FrozenExits
from viewkit.pipelines.models.heads import moco_v3_projector
from viewkit.pipelines.models.initial import seeded_weights
from viewkit.pipelines.models.saved import find_file
from viewkit.shards.artifact import Artifact
from viewkit.shards.errors import DataError
from viewkit.shards.files import read_file
from viewkit.shards.spans import spanned

WEIGHTS = "estimator.safetensors"
FACTS = "estimator.json"

Precision = Literal["fp32", "bf16"]
"""bf16: autocast, whose matrix products take bf16 and sum in fp32; unit norms and similarities are fp32 in any case."""


class Embeddings(NamedTuple):
    """Unit-norm embeddings of views. Similarities are their dot products."""

    top: Float[Tensor, "n d"]
    """Projector outputs z(x) of the base encoder, without the predictor (so that sim(a, b) = sim(b, a))."""
    exits: Float[Tensor, "n e d"]
    """Early-exit outputs z_l(x), shallowest first."""


class EstimatorNetwork(nn.Module):
    """Backbone, MoCo v3 projector and early exits: the part of the estimator that is trained and kept."""

    def __init__(
        self,
        arch: str,
        side_px: int,
        *,
        init: Init,
        hidden: int,
        dim: int,
        num_heads: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.backbone = create_backbone(arch, side_px, init=init, num_heads=num_heads, seed=seed)
        layers = 3 if self.backbone.kind == "vit" else 2
        with seeded_weights(seed + 1):
            self.projector = moco_v3_projector(self.backbone.num_features, hidden, dim, layers=layers)
            self.exits = ExitProjectors(self.backbone.exit_widths, dim)

    def forward(self, x: Float[Tensor, "n 3 s s"]) -> tuple[Float[Tensor, "n d"], Float[Tensor, "n e d"]]:
        """Outputs of the projector and of every exit, not normalised."""
        features, taps = self.backbone.exits(x)
        return self.projector(features), self.exits(taps)


def estimator_facts(source: Artifact | Path) -> dict[str, Any]:
    """All of `estimator.json`, for those who need no network. source: as `Estimator.load` takes it."""
    path = find_file(source, FACTS)
    try:
        facts: dict[str, Any] = json.loads(read_file(path))
        _ = facts["side_px"], facts["tau"]
    except (ValueError, KeyError, TypeError) as error:
        raise _not_facts(path, error) from error
    return facts


def _not_facts(path: Path, error: Exception) -> DataError:
    return DataError(f"{path}: not an estimator's facts ({error!r}); rerun 'viewkit estimator'")


class Estimator:
    """The network in evaluation mode with everything needed to use it; made by `Estimator.load`.

    side_px, mean, std: how its views are rendered. tau: temperature it was trained with. facts: all of
    `estimator.json`. precision: of `embed`.
    """

    def __init__(
        self,
        network: EstimatorNetwork,
        facts: dict[str, Any],
        device: str | torch.device = "cpu",
        precision: Precision = "fp32",
    ) -> None:
        self.network = network.to(device).eval().requires_grad_(False)
        self.frozen_exits = FrozenExits(self.network.exits)
        self.precision = precision
        self.facts = facts
        self.device = torch.device(device)
        self.side_px: int = facts["side_px"]
        self.mean: tuple[float, ...] = tuple(facts["mean"])
        self.std: tuple[float, ...] = tuple(facts["std"])
        self.tau: float = facts["tau"]
        self.num_exits: int = network.backbone.num_exits
        self.num_features: int = network.backbone.num_features

    @staticmethod
    @spanned("load")
    def load(source: Artifact | Path, device: str | torch.device = "cpu", precision: Precision = "fp32") -> "Estimator":
        """source: ``dataset.artifact("estimator")``, whose digests are checked, or a folder holding its two files."""
        weights, facts_path, facts = find_file(source, WEIGHTS), find_file(source, FACTS), estimator_facts(source)
        try:
            network = EstimatorNetwork(
                facts["arch"],
                facts["side_px"],
                init=facts["init"] if "init" in facts else facts["start"],
                num_heads=facts["num_heads"],
                hidden=facts["hidden"],
                dim=facts["dim"],
            )
        except (ValueError, KeyError, TypeError) as error:
            raise _not_facts(facts_path, error) from error
        tensors, _ = load_tensors(weights)
        load_weights(network, tensors, weights)
        return Estimator(network, facts, device, precision)

    @spanned("embed")
    @torch.inference_mode()
    def embed(self, views: Float[Tensor, "n 3 s s"]) -> Embeddings:
        """One forward pass: the top embedding and that of every exit, in fp32.

        On a CPU `views_at_once` views at a time, whose activations stay in the cache.
        """
        parts = [self._embed(part) for part in self._placed(views).split(self.views_at_once(len(views)))]
        return parts[0] if len(parts) == 1 else Embeddings(*(torch.cat(part) for part in zip(*parts, strict=True)))

    def views_at_once(self, count: int) -> int:
        """Views of one pass through the network; a constant on CPUs, as kernels sum in an order that depends on it.

        One core of an EPYC with 160 views of 64 px: 0.64 of a matrix product's speed at once and 0.76 in 32s; with 32
        views of 224 px 0.81 at once and 0.91 in 16s.
        """
        if self.device.type != "cpu":
            return max(count, 1)
        return 32 if self.side_px < 96 else 16

    def _embed(self, views: Float[Tensor, "n 3 s s"]) -> Embeddings:
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.precision == "bf16"):
            features, taps = self.network.backbone.exits(views)
            top, exits = self.network.projector(features), self.frozen_exits(taps)
        return Embeddings(F.normalize(top.float(), dim=-1), F.normalize(exits.float(), dim=-1))

    def _placed(self, views: Tensor) -> Tensor:
        if views.shape[-1] != self.side_px:
            raise DataError(f"estimator: views have {views.shape[-1]} px, and it was trained with {self.side_px} px")
        return views.to(self.device)

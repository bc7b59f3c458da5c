"""One step of the optimiser: loss, gradients of the whole batch, update."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import Optimizer

from viewkit.pipelines.distributed import average_gradients
from viewkit.pipelines.models.backbone import Encoded
from viewkit.pipelines.models.compiling import compile_privately
from viewkit.pipelines.models.dropping import drop_paths
from viewkit.pipelines.training.framework import Framework
from viewkit.pipelines.training.trainable import Trainable
from viewkit.shards.errors import ConfigError
from viewkit.shards.spans import span

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Stepper:
    """How a step is computed. precision: fp32, or autocast to bf16 or fp16, the latter with a scaled loss.

    micro_batch: rows in a forward pass of the backbone; None for the whole batch. The result is the same to rounding.
    """

    device: str
    precision: str = "fp32"
    micro_batch: int | None = None
    scaler: torch.amp.GradScaler | None = None

    @staticmethod
    def make(device: str, precision: str = "fp32", micro_batch: int | None = None) -> "Stepper":
        kind = torch.device(device).type
        scaler = torch.amp.GradScaler(kind) if precision == "fp16" else None
        return Stepper(device, precision, micro_batch, scaler)

    def autocast(self) -> torch.autocast:
        kind = torch.device(self.device).type
        return torch.autocast(kind, dtype=DTYPES.get(self.precision, torch.bfloat16), enabled=self.precision in DTYPES)

    def __call__(
        self,
        framework: Trainable,
        optimiser: Optimizer,
        views: Sequence[Float[Tensor, "n _c _s _s"]],
        weights: Float[Tensor, " n"] | None,
        targets: Sequence[Encoded | None] | None = None,
    ) -> Tensor:
        """One update; returns the loss of this process's rows, still on the device. targets: see `Framework.loss`."""
        optimiser.zero_grad(set_to_none=True)
        if self.micro_batch is None or self.micro_batch >= len(views[0]):
            with span("forward"), self.autocast():
                loss = framework.loss(views, weights, targets)
            with span("backward"):
                self._scaled(loss).backward()
        else:
            assert isinstance(framework, Framework)  # only methods with a backbone take a micro_batch
            with span("forward and backward"):
                loss = self._accumulate(framework, views, weights, targets, self.micro_batch)
        with span("average gradients"):
            average_gradients(framework.parameters())
        with span("update"):
            self._update(framework, optimiser)
        return loss.detach()

    def _update(self, framework: Trainable, optimiser: Optimizer) -> None:
        if self.scaler is not None:
            self.scaler.unscale_(optimiser)
        framework.before_update()
        if self.scaler is None:
            optimiser.step()
        else:
            self.scaler.step(optimiser)
            self.scaler.update()
        framework.step += 1
        framework.after_step()

    def _scaled(self, loss: Tensor) -> Tensor:
        return loss if self.scaler is None else self.scaler.scale(loss)

    def _accumulate(
        self,
        framework: Framework,
        views: Sequence[Tensor],
        weights: Tensor | None,
        known: Sequence[Encoded | None] | None,
        micro_batch: int,
    ) -> Tensor:
        """Exact accumulation for losses that couple rows (VS-2FI, alg. 2; Gao et al. 2021).

        Features of the whole batch are computed without a graph, heads and loss once on all of them, which gives the
        gradient of every feature; each micro-batch then passes the backbone again, and its features' gradients go
        back through it. One forward pass more, and memory for one micro-batch.
        """
        learning, target_views = framework.roles(len(views))
        with torch.no_grad(), self.autocast():
            encoded = [
                _joined([framework.encode(part) for part in view.split(micro_batch)]) if j in learning else None
                for j, view in enumerate(views)
            ]
            targets = known or [
                _joined([framework.encode_target(part) for part in view.split(micro_batch)])
                if j in target_views
                else None
                for j, view in enumerate(views)
            ]
        leaves = [None if each is None else tuple(x.detach().requires_grad_() for x in each) for each in encoded]
        with self.autocast():
            loss = framework.loss_of_encoded(leaves, targets, weights)
        self._scaled(loss).backward()
        for view, leaf in zip(views, leaves, strict=True):
            if leaf is None:
                continue
            gradients = [None if x.grad is None else x.grad.split(micro_batch) for x in leaf]
            for index, part in enumerate(view.split(micro_batch)):
                with self.autocast():
                    outputs = framework.encode(part)
                backed = [
                    (output, gradient[index])
                    for output, gradient in zip(outputs, gradients, strict=True)
                    if gradient is not None and output.requires_grad
                ]
                torch.autograd.backward([output for output, _ in backed], [gradient for _, gradient in backed])
        return loss


def _joined(parts: Sequence[Encoded | None]) -> Encoded | None:
    known = [part for part in parts if part is not None]
    return tuple(torch.cat(pieces) for pieces in zip(*known, strict=True)) if known else None


def check_micro_batch(backbone: nn.Module, micro_batch: int | None, batch_size: int) -> None:
    """`ConfigError` where accumulation would not be exact: a backbone whose batch norms see the micro-batch only, or
    that drops other paths in its second pass."""
    if micro_batch is None or micro_batch >= batch_size:
        return
    if any(isinstance(module, _BatchNorm) for module in backbone.modules()):
        raise ConfigError(
            f"micro_batch is {micro_batch} and the backbone has batch norms, whose statistics would be those of "
            f"{micro_batch} rows; leave the option out, or use a ViT"
        )
    if drop_paths(backbone):
        raise ConfigError(
            f"micro_batch is {micro_batch} and the backbone drops paths at random, others in each of the two passes; "
            "leave the option out, or set --drop-path 0"
        )


def compile_backbones(framework: Framework) -> None:
    """Let torch compile what runs the backbones. Its kernels round differently, so losses change in the last digits."""
    framework.encode = compile_privately(framework.encode)  # type: ignore[method-assign]
    framework.encode_target = compile_privately(framework.encode_target)  # type: ignore[method-assign]

"""What a step of a training costs: operations counted on one real step, and images that pass a backbone."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.optim import Optimizer
from torch.utils.flop_counter import FlopCounterMode

from viewkit.pipelines.distributed import world_size
from viewkit.pipelines.models.backbone import Backbone
from viewkit.pipelines.training.loop import BatchSelector, Source, train_step
from viewkit.pipelines.training.schedules import Schedule
from viewkit.pipelines.training.step import Stepper
from viewkit.pipelines.training.trainable import Trainable
from viewkit.shards.spans import spanned

LEARNING = 3
"""A pass that is learnt from counts as three: its backward costs about twice as much."""


@dataclass
class Counted:
    """flops: floating-point operations of matrix products and convolutions, two for a multiplication and an addition.

    passes: images through a `Backbone`, those that are learnt from counted `LEARNING` times.
    """

    flops: float = 0.0
    passes: float = 0.0


@dataclass
class Passes:
    """Counts images that go through the backbones of a network while its hooks are in place."""

    count: float = 0.0
    handles: list[torch.utils.hooks.RemovableHandle] = field(default_factory=list)

    def watch(self, network: nn.Module) -> None:
        trunks = {id(each.trunk): each.trunk for each in network.modules() if isinstance(each, Backbone)}
        for trunk in trunks.values():
            first = next(module for module in trunk.modules() if isinstance(module, nn.Conv2d))
            self.handles.append(first.register_forward_hook(self._count))

    def _count(self, module: nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        self.count += len(inputs[0]) * (LEARNING if torch.is_grad_enabled() else 1)

    def leave(self) -> None:
        for handle in self.handles:
            handle.remove()


@contextmanager
def counting(network: nn.Module) -> Iterator[Counted]:
    """Counts what happens inside: eagerly, with attention as plain products, so that every device counts the same."""
    found, passes = Counted(), Passes()
    passes.watch(network)
    try:
        eager, plain = torch.compiler.set_stance("force_eager"), sdpa_kernel(SDPBackend.MATH)
        with eager, plain, FlopCounterMode(display=False) as counter:
            yield found
    finally:
        passes.leave()
    found.flops, found.passes = float(counter.get_total_flops()), passes.count


@spanned("count operations")
def count_step(
    framework: Trainable,
    optimiser: Optimizer,
    source: Source,
    schedule: Schedule,
    device: str,
    *,
    selector: BatchSelector | None = None,
) -> dict[str, float]:
    """``step_flops`` and ``step_passes`` of one more step on a real batch, by all processes together.

    What selects or weights the batch counts, rendering it does not. The step is taken: call this when the training is
    over and saved. Empty where a GPU has too little memory to count.
    """
    framework.train()
    framework.step = schedule.steps - 1
    stepper = Stepper.make(device, schedule.precision, schedule.micro_batch)
    batch = next(iter(source.epoch(0)))
    try:
        with counting(framework) as found:
            chosen = batch if selector is None else selector(framework, batch, stepper)
            train_step(framework, optimiser, chosen, schedule, stepper)
    except torch.OutOfMemoryError:
        if device == "cpu" or world_size() > 1:
            raise
        return {}  # plain attention takes more of a GPU's memory than the training did: its cost is not known
    return {"step_flops": found.flops * world_size(), "step_passes": found.passes * world_size()}

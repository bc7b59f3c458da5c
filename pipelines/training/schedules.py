"""How long a training is, and learning rates, weight decay and momenta as functions of the step; plain Python."""

import math
from dataclasses import dataclass
from typing import Literal

from viewkit.pipelines.engine.ranges import check_at_least
from viewkit.shards.errors import ConfigError

Precision = Literal["fp32", "bf16", "fp16"]
AnyPrecision = Literal["auto", "fp32", "bf16", "fp16"]
PRECISION_HELP = "bf16, fp16: autocast; auto: bf16 where the processor or GPU computes in it, fp32 elsewhere"

LrSchedule = Literal["cosine", "steps"]
LR_STEPS = (0.6, 0.8)
"""Shares of a training after which `steps` takes a tenth: MoCo v1's epochs 120 and 160 of 200 (He et al. 2020)."""

WARMUP_SHARE = 0.15
"""A warm-up that was not given takes at most this share of the training (MoCo v3's 40 epochs of 300 are .133)."""
MAX_START_WEIGHT = 0.02
"""A momentum that was not given leaves the random start at most this weight in the momentum encoder at the end. With
the published .99, rising to 1, the start weighs .55 after 120 steps and .08 after 500."""


def decided(precision: AnyPrecision) -> Precision:
    """Of a training that begins: a stage's `for_images` has decided what "auto" means."""
    assert precision != "auto", "decided before a training begins"
    return precision


def check_duration(
    *, epochs: int, steps: int | None, warmup_epochs: float, batch_size: int, fit_warmup: bool = False
) -> None:
    """Durations that can be judged before the number of rows is known. fit_warmup: see `count_steps`."""
    check_at_least(1, epochs=epochs, steps=steps)
    check_at_least(0, warmup_epochs=warmup_epochs)
    if batch_size < 2:
        raise ConfigError(f"batch_size is {batch_size}; batch norm and negatives need at least 2 rows in a batch")
    if steps is None and warmup_epochs >= epochs and not fit_warmup:
        raise ConfigError(f"warmup_epochs is {warmup_epochs:g} and epochs is {epochs}; the warm-up must be shorter")


def count_steps(
    *, epochs: int, steps: int | None, warmup_epochs: float, steps_per_epoch: int, fit_warmup: bool = False
) -> tuple[int, int]:
    """Steps of the whole training and of its warm-up. `ConfigError` when nothing is left after the warm-up.

    fit_warmup: the warm-up was not asked for, and takes at most `WARMUP_SHARE` of the training.
    """
    total = epochs * steps_per_epoch if steps is None else steps
    warmup = round(warmup_epochs * steps_per_epoch)
    if fit_warmup:
        warmup = min(warmup, int(WARMUP_SHARE * total))
    if warmup >= total:
        raise ConfigError(
            f"warmup_epochs is {warmup_epochs:g} ({warmup} steps of {steps_per_epoch} an epoch) and the training has "
            f"{total} steps; lower --warmup-epochs or train longer"
        )
    return total, warmup


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """How long, how fast and in what precision. peak_lr: the learning rate after the warm-up, scaled to the batch.

    lr_schedule: after the warm-up, half a cosine down to `lr_end`, or a tenth after each of `LR_STEPS`.
    weight_decay: from the first to the last step, along half a cosine; None where it stays as the optimiser has it.
    micro_batch: rows in a forward pass of the backbone, see `Stepper`. seed: of what networks drop while they train.
    """

    steps: int
    warmup_steps: int
    peak_lr: float
    lr_end: float = 0.0
    lr_schedule: LrSchedule = "cosine"
    seed: int = 0
    weight_decay: tuple[float, float] | None = None
    precision: Precision = "fp32"
    micro_batch: int | None = None

    def lr(self, step: int) -> float:
        steps, warmup_steps, peak = self.steps, self.warmup_steps, self.peak_lr
        if self.lr_schedule == "steps":
            return warmup_steps_down(step, steps=steps, warmup_steps=warmup_steps, peak=peak)
        return warmup_cosine(step, steps=steps, warmup_steps=warmup_steps, peak=peak, final=self.lr_end)

    def decay(self, step: int) -> float | None:
        if self.weight_decay is None:
            return None
        start, end = self.weight_decay
        return warmup_cosine(step, steps=self.steps, warmup_steps=0, peak=start, final=end)


def warmup_steps_down(step: int, *, steps: int, warmup_steps: int, peak: float) -> float:
    """Learning rate of step 0 ... steps - 1: linear to `peak`, then a tenth from each share of `LR_STEPS` on."""
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    return peak * 0.1 ** sum(step >= round(share * steps) for share in LR_STEPS)


def warmup_cosine(step: int, *, steps: int, warmup_steps: int, peak: float, final: float = 0.0) -> float:
    """Learning rate of step 0 ... steps - 1: linear to `peak`, then half a cosine down to `final`.

    Step s of the warm-up takes peak * (s + 1) / warmup_steps (at s = 0 the released code of MoCo v3 takes 0, a step
    that changes nothing); the cosine begins at `peak` in the step after it and would reach `final` at step `steps`.
    """
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    share = (step - warmup_steps) / max(1, steps - warmup_steps)
    return final + (peak - final) * 0.5 * (1 + math.cos(math.pi * share))


def cosine_momentum(step: int, *, steps: int, start: float) -> float:
    """Momentum of the weights' average: from `start` at step 0 along half a cosine to 1 at step `steps`."""
    return 1 - (1 - start) * 0.5 * (1 + math.cos(math.pi * step / steps))


def start_weight(*, steps: int, start: float, rising: bool) -> float:
    """Weight of the random start in a momentum encoder after `steps` updates: the product of their momenta."""
    if not rising:
        return start**steps
    return math.prod(cosine_momentum(step, steps=steps, start=start) for step in range(1, steps + 1))


def fitted_momentum(*, steps: int, start: float, rising: bool) -> float:
    """`start`, or the largest momentum below it that leaves the random start `MAX_START_WEIGHT` after `steps` updates.

    A training of one step, whose only update of a rising momentum has momentum 1, is left as it is.
    """
    if (rising and steps < 2) or start_weight(steps=steps, start=start, rising=rising) <= MAX_START_WEIGHT:
        return start
    low, high = 0.0, start
    for _ in range(50):
        middle = (low + high) / 2
        if start_weight(steps=steps, start=middle, rising=rising) <= MAX_START_WEIGHT:
            low = middle
        else:
            high = middle
    return low

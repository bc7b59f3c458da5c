"""Learning rates and momenta as functions of the step."""

import math


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

import math

import pytest

from viewkit.pipelines.training.schedules import (
    check_duration,
    cosine_momentum,
    count_steps,
    fitted_momentum,
    start_weight,
    warmup_cosine,
)
from viewkit.shards.errors import ConfigError


def test_the_rate_rises_to_its_peak_and_falls_along_a_cosine():
    rates = [warmup_cosine(step, steps=50, warmup_steps=10, peak=0.4) for step in range(50)]
    assert rates[:10] == pytest.approx([0.04 * (step + 1) for step in range(10)])
    assert rates[10] == 0.4 and rates[30] == pytest.approx(0.2)
    assert rates[10:] == pytest.approx([0.2 * (1 + math.cos(math.pi * step / 40)) for step in range(40)])
    assert warmup_cosine(50, steps=50, warmup_steps=10, peak=0.4, final=0.1) == pytest.approx(0.1)


def test_without_warm_up_the_first_step_has_the_peak():
    assert warmup_cosine(0, steps=10, warmup_steps=0, peak=0.3) == 0.3


def test_the_momentum_rises_from_its_start_to_one():
    assert cosine_momentum(0, steps=100, start=0.99) == pytest.approx(0.99)
    assert cosine_momentum(50, steps=100, start=0.99) == pytest.approx(0.995)
    assert cosine_momentum(100, steps=100, start=0.99) == 1


def test_epochs_or_steps_count_steps():
    assert count_steps(epochs=10, steps=None, warmup_epochs=1.5, steps_per_epoch=20) == (200, 30)
    assert count_steps(epochs=10, steps=77, warmup_epochs=1.0, steps_per_epoch=20) == (77, 20)


def test_an_impossible_duration_is_a_config_error():
    with pytest.raises(ConfigError, match="batch_size is 1; batch norm"):
        check_duration(epochs=1, steps=None, warmup_epochs=0.0, batch_size=1)
    with pytest.raises(ConfigError, match="warmup_epochs is 5 and epochs is 5"):
        check_duration(epochs=5, steps=None, warmup_epochs=5.0, batch_size=8)
    with pytest.raises(ConfigError, match="epochs is 0; it must be at least 1"):
        check_duration(epochs=0, steps=None, warmup_epochs=0.0, batch_size=8)
    with pytest.raises(ConfigError, match="the training has 5 steps"):
        count_steps(epochs=10, steps=5, warmup_epochs=1.0, steps_per_epoch=20)


@pytest.mark.parametrize(("rising", "start"), [(True, 0.99), (True, 0.996), (False, 0.999)])
@pytest.mark.parametrize("steps", [2, 50, 120, 500, 5000])
def test_a_momentum_that_was_not_given_leaves_the_random_start_two_percent(rising, start, steps):
    found = fitted_momentum(steps=steps, start=start, rising=rising)
    weight = 1.0
    for step in range(1, steps + 1):  # what the momentum encoder does
        weight *= cosine_momentum(step, steps=steps, start=found) if rising else found
    if found == start:
        assert weight <= 0.02
    else:
        assert found < start and (weight == pytest.approx(0.02, rel=1e-3) or steps == 2)
    assert steps == 5000 or found < start


def test_the_weight_of_the_random_start_is_that_of_the_review():
    found = [start_weight(steps=steps, start=0.99, rising=True) for steps in (120, 320, 500)]
    assert found == pytest.approx([0.55, 0.20, 0.08], abs=0.01)


def test_a_warmup_that_was_not_given_takes_at_most_fifteen_percent():
    assert count_steps(epochs=300, steps=None, warmup_epochs=40, steps_per_epoch=10, fit_warmup=True) == (3000, 400)
    assert count_steps(epochs=5, steps=None, warmup_epochs=10, steps_per_epoch=20, fit_warmup=True) == (100, 15)
    assert count_steps(epochs=5, steps=3, warmup_epochs=10, steps_per_epoch=20, fit_warmup=True) == (3, 0)

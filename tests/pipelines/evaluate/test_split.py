import numpy as np
import pytest

from viewkit.pipelines.evaluate.labelled import hold_out, labelled_part

LABELS = np.repeat([0, 1, 2, 3], [40, 10, 2, 1])
KEYS = [f"key{place}" for place in range(len(LABELS))]


def counts(chosen):
    return [int(chosen[label == LABELS].sum()) for label in range(4)]


def test_the_held_out_share_is_that_of_every_class_and_never_all_of_one():
    assert counts(hold_out(KEYS, LABELS, 0.2)) == [8, 2, 1, 0]
    assert counts(hold_out(KEYS, LABELS, 0.99)) == [39, 9, 1, 0]


def test_a_labelled_part_has_at_least_one_row_of_every_class():
    assert counts(labelled_part(KEYS, LABELS, 0.1)) == [4, 1, 1, 1]
    assert counts(labelled_part(KEYS, LABELS, 0.01)) == [1, 1, 1, 1]


@pytest.mark.parametrize("part", [hold_out, labelled_part])
def test_the_order_of_the_rows_changes_nothing(part):
    order = np.random.default_rng(0).permutation(len(KEYS))
    shuffled = part([KEYS[place] for place in order], LABELS[order], 0.2)
    assert {KEYS[place] for place in order[shuffled]} == {
        KEYS[place] for place in np.flatnonzero(part(KEYS, LABELS, 0.2))
    }


def test_a_smaller_share_lies_within_a_larger_one():
    assert not (labelled_part(KEYS, LABELS, 0.1) & ~labelled_part(KEYS, LABELS, 0.5)).any()

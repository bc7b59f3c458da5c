import numpy as np
import pytest
import vs2fi as reference

from viewkit.pipelines.audit.filtering import filtered_by_round, filtered_shares, sensitivity

K_SC, K_AL = 0.875, 4.0


def world(rows=40, pairs=6, seed=0):
    rng = np.random.default_rng(seed)
    consistency = rng.choice([0.25, 0.75, 0.875, 0.9375, 1.0], (rows, pairs)).astype(np.float32)
    return consistency, rng.integers(1, 8, (rows, pairs)).astype(np.float32)


def test_shares_of_a_row_counted_by_hand():
    consistency = np.array([[0.95, 0.95, 0.5, 0.5], [0.5, 0.6, 0.1, 0.2]])
    level = np.array([[5, 2, 2, 6], [6, 2, 7, 7]], dtype=np.float64)
    found = filtered_shares(consistency, level, K_SC, K_AL)
    assert found == {
        "below_k_sc": 6 / 8,
        "below_k_al": 3 / 8,
        "below_both": 2 / 8,
        "above_both": 1 / 8,
        "removed_sc": 5 / 8,  # two of the first row; of the second all but its best, 0.6
        "removed_al": 1 / 8,  # the first row's level 2; the second row's only pair has level 2 and stays
        "surviving": 2 / 8,
        "relaxed_sc": 1 / 2,
        "relaxed_al": 1 / 2,
        "relaxed": 1 / 2,
    }


@pytest.mark.parametrize(("k_sc", "k_al"), [(0.875, 4.0), (0.0, 1.0), (1.0, 7.0), (0.99, 8.0)])
def test_the_survivors_are_those_of_the_papers_loop_and_the_shares_add_up(k_sc, k_al):
    consistency, level = world()
    slow = [reference.keep(c.tolist(), a.tolist(), k_sc, k_al) for c, a in zip(consistency, level, strict=True)]
    found = filtered_shares(consistency, level, k_sc, k_al)
    assert found["surviving"] == pytest.approx(sum(map(len, slow)) / consistency.size)
    assert found["removed_sc"] + found["removed_al"] + found["surviving"] == pytest.approx(1)
    without_relaxing = ~((consistency < k_sc) | (level < k_al)).all(axis=1)
    assert found["relaxed"] == pytest.approx(1 - without_relaxing.mean())


def test_a_round_has_the_shares_of_its_own_pairs():
    consistency, level = (values.reshape(20, 2, 6) for values in world())
    found = filtered_by_round(consistency, level, K_SC, K_AL)
    assert found["rounds"][1] == filtered_shares(consistency[:, 1], level[:, 1], K_SC, K_AL)
    for name, share in found["all"].items():
        assert share == pytest.approx(np.mean([each[name] for each in found["rounds"]]))


def test_stricter_thresholds_pass_fewer_pairs_and_relax_more_rows():
    consistency, level = world()
    found = sensitivity(consistency, level, [(0.5, level)], num_exits=6, k_sc=K_SC, k_al=K_AL)
    assert [point["value"] for point in found["k_al"]] == [1, 2, 3, 4, 5, 6, 7]
    assert K_SC in [point["value"] for point in found["k_sc"]]
    for name in ("k_sc", "k_al"):
        assert (np.diff([point["relaxed"] for point in found[name]]) >= 0).all()
    used = filtered_shares(consistency, level, K_SC, K_AL)
    for points, value in ((found["k_sc"], K_SC), (found["k_al"], K_AL), (found["gamma"], 0.5)):
        (point,) = [each for each in points if each["value"] == value]
        assert point["surviving"] == used["surviving"]

import numpy as np
import pytest
from scipy import stats

from viewkit.pipelines.compare.mcnemar import mcnemar
from viewkit.pipelines.compare.plan import Cell
from viewkit.pipelines.compare.statistics import paired
from viewkit.pipelines.compare.summary import Evaluated, summarise_cell, summarise_difference
from viewkit.pipelines.compare.verdict import Rules, Verdict, judge, judge_cost

RULES = Rules()
REFERENCE, ARM = Cell("random", 10), Cell("arm", 10)


def judged(differences, rules=RULES):
    found = paired(differences, alpha=rules.alpha, power=rules.power)
    return judge(found, 1.0 if found.p_t is None else found.p_t, rules)


@pytest.mark.parametrize(
    ("differences", "word"),
    [
        ([3.0, 2.5, 3.5, 2.8, 3.1, 2.9], "helps"),
        ([-3.0, -2.5, -3.5, -2.8, -3.1, -2.9], "hurts"),
        ([0.1, -0.2, 0.15, -0.1, 0.05, 0.0], "no clear difference"),
        ([4.0, -3.0, 5.0, -1.0, 2.0, -2.0], "not decidable at this size"),
        ([3.0, 2.5, 3.5, 2.8, 3.1], "not decidable at this size"),
        ([0.0] * 6, "no clear difference"),
        ([0.3] * 6, "helps"),
    ],
)
def test_every_word_has_its_rule(differences, word):
    assert judged(differences).word == word


def test_five_seeds_that_all_win_need_a_sixth_and_wide_ones_need_many():
    assert str(judged([3.0, 2.5, 3.5, 2.8, 3.1])) == "not decidable at this size (needs about 6 seeds)"
    wide = judged([4.0, -3.0, 5.0, -1.0, 2.0, -2.0])
    assert wide.needs > 50 and judged([4.0, -3.0, 5.0, -1.0, 2.0, -2.0], Rules(matters=8)).needs is None
    assert Rules(alpha=0.01).min_seeds == 8 and RULES.min_seeds == 6


def test_a_difference_that_the_correction_takes_away_is_not_called_one():
    found = paired([1.0, 0.3, 0.9, 0.1, 0.4, 0.05], alpha=0.05, power=0.8)
    assert 0.025 < found.p_t < 0.05
    assert judge(found, found.p_t, RULES).word == "helps"
    assert judge(found, 2 * found.p_t, RULES).word == "no clear difference"


def test_an_arm_is_worth_its_cost_where_it_beats_what_the_cost_would_buy():
    assert str(judge_cost(Verdict("helps"))) == "worth its cost"
    assert {str(judge_cost(Verdict(word))) for word in ("hurts", "no clear difference")} == {"not worth its cost"}
    assert str(judge_cost(Verdict("not decidable at this size", 9))).endswith("(needs about 9 seeds)")


def test_the_rules_say_their_numbers():
    assert "no difference of 1 point or more" in (one := " ".join(Rules().sentences()))
    assert "as many seeds as find a difference of 1 point with probability 0.8" in one
    text = " ".join(Rules(matters=2.5).sentences())
    assert "fewer than 6 seeds" in text and "0.0625" in text and "2.5 points" in text and "Holm" in text


def test_mcnemar_is_the_binomial_test_of_the_images_that_one_alone_got_right():
    arm = np.array([True] * 8 + [False] * 2 + [True] * 5 + [False] * 5)
    reference = np.array([False] * 8 + [True] * 2 + [True] * 5 + [False] * 5)
    found = mcnemar(arm, reference)
    assert (found.gained, found.lost) == (8, 2) and found.disagreement == 0.5
    assert found.p == pytest.approx(2 * sum(stats.binom.pmf(k, 10, 0.5) for k in (0, 1, 2)))  # .109375
    assert found.error == pytest.approx(np.sqrt(0.5 / 20)) and mcnemar(arm, arm).p == 1.0


def runs_of(values, correct=None):
    return [Evaluated({"knn20": value, "linear": value + 5}, correct or {}) for value in values]


def test_the_summary_has_every_number_of_every_probe():
    measured = {REFERENCE: runs_of([50, 51, 52, 50, 51, 52.0]), ARM: runs_of([53, 54.2, 55, 53.1, 54, 55.4])}
    found = summarise_difference(ARM, REFERENCE, measured, RULES)["probes"]
    assert set(found) == {"knn20", "linear"} and found["knn20"]["differences"] == pytest.approx(
        [3, 3.2, 3, 3.1, 3, 3.4]
    )
    assert found["linear"]["verdict"] == "helps" and found["linear"]["p_holm"] == pytest.approx(
        2 * found["linear"]["p_t"]
    )
    assert found["knn20"]["mcnemar"] == [] and found["knn20"]["detectable"] > 0
    cell = summarise_cell(REFERENCE, measured[REFERENCE])
    assert cell["probes"]["knn20"]["mean"] == pytest.approx(51) and cell["label"] == "random, 10 steps"


def test_correct_answers_are_compared_seed_by_seed():
    right = {"knn20": np.array([[True, True, False, False]])}
    wrong = {"knn20": np.array([[True, False, False, False]])}
    measured = {REFERENCE: runs_of([25.0, 25.0], wrong), ARM: runs_of([50.0, 50.0], right)}
    found = summarise_difference(ARM, REFERENCE, measured, RULES)["probes"]
    assert found["knn20"]["mcnemar"] == [{"gained": 1, "lost": 0, "p": 1.0}] * 2
    assert found["knn20"]["disagreement"] == 0.25 and found["knn20"]["error_over_images"] == pytest.approx(25)
    assert found["linear"]["mcnemar"] == []


@pytest.mark.slow
def test_under_the_null_an_arm_is_called_helping_or_hurting_no_more_often_than_one_in_twenty():
    rng = np.random.default_rng(0)
    trials, alarms = 600, 0
    for _ in range(trials):
        base, noise = rng.normal(60, 2, 6), rng.normal(0, 1, (2, 2, 6))
        reference, arm = (
            [Evaluated({"knn20": base[s] + each[0, s], "linear": base[s] + each[1, s]}, {}) for s in range(6)]
            for each in noise
        )
        found = summarise_difference(ARM, REFERENCE, {REFERENCE: reference, ARM: arm}, RULES)["probes"]
        alarms += any(each["verdict"] in ("helps", "hurts") for each in found.values())
    assert alarms / trials <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / trials)

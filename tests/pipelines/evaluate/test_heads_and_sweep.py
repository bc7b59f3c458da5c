import inspect

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from viewkit.pipelines.evaluate.sweep import LinearHeads, cached_epochs, cosine, draw_weights, split_evenly, sweep_rates
from viewkit.shards.errors import DataError

C, D, EPOCHS, BATCH = 4, 6, 5, 16
RATES = (0.03, 0.3, 3.0)


def rows(count, seed):
    """Noisy rows of C classes, overlapping, so that rates differ in what they reach."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % C
    return torch.from_numpy(np.eye(C, D)[labels] + 0.6 * rng.normal(size=(count, D))).float(), torch.from_numpy(labels)


TRAIN, LABELS = rows(60, 0)
TEST, _ = rows(24, 1)
FIRST = draw_weights(C, D, np.random.default_rng(2))
HELD = np.arange(60) % 5 == 0


def order(epoch):
    return np.random.default_rng(epoch)


def sweep(rates=RATES, held=HELD, test=TEST, train=TRAIN, labels=LABELS):
    source = cached_epochs(train, labels, BATCH, order)
    return sweep_rates(
        source, train, labels, test, rates=rates, held=held, epochs=EPOCHS, batch_size=BATCH, first=FIRST
    )  # fmt: skip


def alone(rate, learns):
    """Slow reference: one nn.Linear under torch's SGD, rows that it does not learn from left out of every batch."""
    head = torch.nn.Linear(D, C)
    with torch.no_grad():
        head.weight.copy_(FIRST)
        head.bias.zero_()
    optimiser = torch.optim.SGD(head.parameters(), lr=rate, momentum=0.9)
    for epoch in range(EPOCHS):
        optimiser.param_groups[0]["lr"] = rate * 15 / 256 * cosine(epoch, EPOCHS)
        for part in split_evenly(order(epoch).permutation(60), BATCH):
            part = part[learns[part]]
            optimiser.zero_grad()
            F.cross_entropy(head(TRAIN[part]), LABELS[part]).backward()
            optimiser.step()
    return head


def test_heads_side_by_side_are_what_separate_trainings_give():
    everything = np.ones(60, bool)
    heads = LinearHeads(FIRST, 2 * len(RATES))
    counted = torch.from_numpy(np.stack([~HELD] * 3 + [everything] * 3)).float()
    for epoch in range(EPOCHS):
        for x, y, number in cached_epochs(TRAIN, LABELS, BATCH, order)(epoch):
            heads.step(x, y, counted[:, number], torch.tensor(RATES * 2) * 15 / 256 * cosine(epoch, EPOCHS))
    scores = heads.scores(TEST)
    for place, (rate, learns) in enumerate([(r, k) for k in (~HELD, everything) for r in RATES]):
        reference = alone(rate, learns)
        torch.testing.assert_close(heads.weight[place], reference.weight.detach(), rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(scores[place], reference(TEST).detach(), rtol=1e-5, atol=1e-5)


def test_the_scores_are_those_of_the_chosen_rate_trained_on_all_rows():
    found = sweep()
    judged = [(alone(rate, ~HELD)(TRAIN[HELD]).argmax(1) == LABELS[HELD]).double().mean().item() for rate in RATES]
    assert found.split_accuracy == pytest.approx(max(judged)) and len(set(judged)) > 1
    assert found.rate == RATES[judged.index(max(judged))]
    reference = alone(found.rate, np.ones(60, bool))
    np.testing.assert_allclose(found.scores, reference(TEST).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_test_labels_are_not_given_and_test_rows_change_neither_the_rate_nor_each_others_scores():
    assert [name for name in inspect.signature(sweep_rates).parameters if "label" in name] == ["labels"]
    whole, part = sweep(), sweep(test=TEST[:5])
    assert whole.rate == part.rate and whole.split_accuracy == part.split_accuracy
    np.testing.assert_allclose(part.scores, whole.scores[:5], rtol=1e-6)


def test_the_choice_looks_at_held_labels_which_its_classifiers_never_learn_from():
    wrong = LABELS.clone()
    wrong[torch.from_numpy(HELD)] = (wrong[torch.from_numpy(HELD)] + 1) % C
    judged = [(alone(rate, ~HELD)(TRAIN[HELD]).argmax(1) == wrong[HELD]).double().mean().item() for rate in RATES]
    assert sweep(labels=wrong).split_accuracy == pytest.approx(max(judged))


def test_one_rate_is_taken_as_it_is():
    found = sweep(rates=(0.3,))
    assert (found.rate, found.split_accuracy) == (0.3, None)
    np.testing.assert_allclose(found.scores, alone(0.3, np.ones(60, bool))(TEST).detach(), rtol=1e-4, atol=1e-5)


def test_a_rate_that_diverges_is_not_chosen_and_spoils_no_other():
    fine, found = sweep(rates=(0.3, 3.0)), sweep(rates=(0.3, 3.0, 1e39))
    assert found.rate == fine.rate
    np.testing.assert_allclose(found.scores, fine.scores, rtol=1e-4, atol=1e-5)


def test_rates_that_all_diverge_stop_the_probe():
    with pytest.raises(DataError, match=r"diverges at every learning rate tried \(1e\+39\)"):
        sweep(rates=(1e39,))


def test_the_cosine_falls_from_one_and_would_end_at_zero():
    assert [cosine(epoch, 4) for epoch in (0, 2, 4)] == pytest.approx([1, 0.5, 0])


def test_batches_hold_every_row_once_and_none_is_tiny():
    parts = split_evenly(np.arange(1025), 1024)
    assert [len(part) for part in parts] == [513, 512] and np.array_equal(np.concatenate(parts), np.arange(1025))

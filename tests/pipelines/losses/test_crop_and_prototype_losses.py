import math

import pytest
import reference_losses as reference
import torch
from lightly.loss import DINOLoss, SwaVLoss
from lightly.loss.swav_loss import sinkhorn

from viewkit.pipelines.losses.assignment import balanced_assignments, swapped_prediction
from viewkit.pipelines.losses.crop_cross_entropy import crop_cross_entropy


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_cross_entropy_of_a_flat_student_is_the_log_of_its_width():
    losses = crop_cross_entropy([draw(4, 8)], [torch.ones(4, 8)], torch.zeros(8), teacher_tau=0.04, tau=0.1)
    torch.testing.assert_close(losses, torch.full((4, 1, 1), math.log(8)))


def test_every_row_and_pair_of_crops_costs_what_the_loop_of_the_paper_says():
    teachers, students = [draw(5, 6, seed=s) / 4 for s in range(2)], [draw(5, 6, seed=s) for s in range(2, 5)]
    centre = draw(6, seed=9) / 10
    losses = crop_cross_entropy(teachers, students, centre, teacher_tau=0.1, tau=0.5)
    assert losses.shape == (5, 2, 3)
    for row in range(5):
        for t, teacher in enumerate(teachers):
            for s, student in enumerate(students):
                sides = teacher[row].tolist(), student[row].tolist(), centre.tolist()
                assert losses[row, t, s].item() == pytest.approx(reference.cross_entropy(*sides, 0.1, 0.5), rel=1e-5)


def test_the_mean_over_different_crops_equals_lightly_with_its_gradients():
    students = [draw(5, 6, seed=s).requires_grad_() for s in range(4)]
    teachers = [draw(5, 6, seed=s) for s in range(4, 6)]
    loss = DINOLoss(output_dim=6, teacher_temp=0.06, student_temp=0.1)
    loss.center = draw(1, 1, 6, seed=8) / 10
    centre = loss.center[0, 0].clone()
    expected = loss(teachers, students)
    all_pairs = crop_cross_entropy(teachers, students, centre, teacher_tau=0.06, tau=0.1)
    ours = torch.stack([all_pairs[:, t, s] for t in range(2) for s in range(4) if t != s]).mean()
    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-6)
    for a, b in zip(torch.autograd.grad(ours, students), torch.autograd.grad(expected, students), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_assignments_equal_the_loop_and_lightlys():
    scores = draw(12, 5)
    ours = balanced_assignments(scores, epsilon=0.3, rounds=3)
    torch.testing.assert_close(ours, torch.tensor(reference.sinkhorn(scores.tolist(), 0.3, 3)), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(ours, sinkhorn(scores, iterations=3, epsilon=0.3), rtol=1e-4, atol=1e-6)


def test_assignments_give_every_prototype_an_equal_share_in_the_end():
    q = balanced_assignments(draw(12, 4), epsilon=0.5, rounds=200)
    torch.testing.assert_close(q.sum(dim=1), torch.ones(12))
    torch.testing.assert_close(q.sum(dim=0), torch.full((4,), 3.0), rtol=1e-4, atol=0)


def test_assignments_stay_finite_where_exponentials_do_not():
    q = balanced_assignments(draw(12, 4), epsilon=0.001, rounds=3)
    assert q.isfinite().all() and torch.allclose(q.sum(dim=1), torch.ones(12))


def test_queued_rows_take_part_in_the_balance():
    scores, queued = draw(4, 3), draw(8, 3, seed=1)
    whole = balanced_assignments(torch.cat([scores, queued]), epsilon=0.3, rounds=3)
    torch.testing.assert_close(balanced_assignments(scores, epsilon=0.3, rounds=3, queued=queued), whole[:4])


def test_swapped_predictions_equal_lightly_with_its_gradients():
    views = [(draw(12, 5, seed=s) / 5).requires_grad_() for s in range(4)]
    theirs = SwaVLoss(temperature=0.1, sinkhorn_iterations=3, sinkhorn_epsilon=0.05)
    expected = theirs(views[:2], views[2:]).squeeze()
    q = [balanced_assignments(view, epsilon=0.05, rounds=3) for view in views[:2]]
    pairs = [(s, t) for t in range(2) for s in range(4) if s != t]
    ours = torch.stack([swapped_prediction(views[s], q[t], 0.1) for s, t in pairs]).mean()
    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-6)
    for a, b in zip(torch.autograd.grad(ours, views), torch.autograd.grad(expected, views), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)

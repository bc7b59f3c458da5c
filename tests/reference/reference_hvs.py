"""Hard view selection as plain loops: every pair is trained on, row by row, with all weight on that row."""

import copy
from contextlib import nullcontext
from itertools import combinations

import torch


def loss_of_row(framework, views, row, precision=nullcontext):
    """The training loss when only one row counts; the framework itself is left alone."""
    weights = torch.zeros(len(views[0]))
    weights[row] = len(weights)
    with torch.no_grad(), precision():
        return copy.deepcopy(framework).loss(views, weights).item()


def pair_losses(framework, views, precision=nullcontext):
    """[n c] losses, pairs (0, 1), (0, 2) ... precision: opens an autocast."""
    return [
        [loss_of_row(framework, [views[j], views[k]], row, precision) for j, k in combinations(range(len(views)), 2)]
        for row in range(len(views[0]))
    ]


def worst(losses):
    """Index of the highest loss; the first one where there are several."""
    best = 0
    for index, loss in enumerate(losses):
        if loss > losses[best]:
            best = index
    return best


def crop_combinations(num_large, num_small, num_chosen):
    return [
        (a, b, small)
        for a in range(0, num_large, 2)
        for b in range(1, num_large, 2)
        for small in combinations(range(num_large, num_large + num_small), num_chosen)
    ]

import numpy as np
import pytest

from viewkit.pipelines.hard_views.importance import pair_parameters, share_of_lowest_iou, view_importance
from viewkit.pipelines.pairs.order import pair_index
from viewkit.pipelines.views.boxes import overlap
from viewkit.pipelines.views.policies import load_policy
from viewkit.pipelines.views.recipe import BOX, column
from viewkit.pipelines.views.sample import sample_recipes


def log_of(loss_of, rows=200):
    """A log of rows whose losses are `loss_of(parameters)`."""
    sizes = np.full((rows, 2), 100, dtype=np.int64)
    ids = np.random.default_rng(0).integers(0, 2**63, (rows, 2)).astype(np.uint64)
    recipes = sample_recipes(load_policy("simsiam"), ids, sizes, seed=0, stage="x", num_views=4)
    boxes = recipes[:, :, BOX].astype(np.float64)
    first, second = pair_index(4).T
    iou = overlap(boxes[:, first], boxes[:, second])
    sizes_px = np.full((rows, 4, 2), 100, dtype=np.int32)
    losses = loss_of(pair_parameters(recipes, sizes_px, iou))
    step = np.repeat(np.arange(rows // 50), 50)
    losses = losses - 5.0 * step[:, None]  # a loss that falls while training
    views = pair_index(4)[losses.argmax(axis=1)]
    return {"step": step, "recipes": recipes, "sizes_px": sizes_px, "iou": iou, "losses": losses, "views": views}


def test_the_parameter_that_makes_the_loss_is_the_most_important_one():
    found = view_importance(log_of(lambda parameters: np.abs(parameters["brightness"]) * 3))
    assert found.names[0] == "brightness" and found.means[0] > 10 * found.means[1] and found.r2 > 0.9
    assert found.lines()[1].startswith("brightness")


def test_a_loss_of_overlap_alone_chooses_the_pair_of_least_overlap():
    log = log_of(lambda parameters: -parameters["iou"])
    found = view_importance(log, rows=100)
    assert found.names[0] == "iou" and found.lowest_iou == 1.0 and found.rows == 100
    log["views"] = np.repeat([[0, 1]], 200, axis=0)
    assert share_of_lowest_iou(log) == pytest.approx(1 / 6, abs=0.08)


def test_parameters_of_a_pair_by_hand():
    recipes = np.zeros((1, 3, 21), dtype=np.float32)
    recipes[0, :, BOX] = [[0, 0, 1, 1], [0, 0, 0.5, 0.5], [0.5, 0.5, 0.5, 0.5]]
    recipes[0, :, column("hue")] = [0.1, -0.1, 0.0]
    recipes[0, :, column("flip")] = [0, 1, 1]
    sizes = np.tile(np.array([30, 40], dtype=np.int32), (1, 3, 1))
    found = pair_parameters(recipes, sizes, np.array([[0.25, 0.25, 0.0]]))
    assert found["centre distance"][0] == pytest.approx([0.25, 0.25, 0.5])
    assert found["area ratio"][0] == pytest.approx([np.log(4), np.log(4), 0.0])
    assert found["colour distance"][0] == pytest.approx([0.2, 0.1, 0.1])
    assert found["one flipped"][0].tolist() == [1, 1, 0] and found["smaller area"][0].tolist() == [0.25] * 3


def test_nothing_logged_gives_no_table():
    assert view_importance({}) is None

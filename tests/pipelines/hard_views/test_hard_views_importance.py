import numpy as np
import pytest
from sklearn.ensemble import RandomForestRegressor

from viewkit.pipelines.hard_views.fanova import fanova
from viewkit.pipelines.hard_views.importance import pair_parameters, share_of_lowest_iou, view_importance
from viewkit.pipelines.hard_views.prediction import predict_selected
from viewkit.pipelines.pairs.order import pair_index
from viewkit.pipelines.views.boxes import overlap
from viewkit.pipelines.views.policies import load_policy
from viewkit.pipelines.views.recipe import BOX, column
from viewkit.pipelines.views.sample import sample_recipes
from viewkit.shards.errors import DataError


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
    assert found.lines()[1].startswith("parameter") and found.lines()[2].startswith("brightness")


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


def forest_of(effect, interaction=False):
    """A forest fitted to steps at one half of two uniform parameters, and a third that does nothing."""
    x = np.random.default_rng(0).random((4000, 3))
    high = x > 0.5
    y = effect * high[:, 0] + 1.0 * high[:, 1] + (4.0 * (high[:, 0] ^ high[:, 1]) if interaction else 0)
    return RandomForestRegressor(n_estimators=5, max_features=None, random_state=0).fit(x, y)


def test_fanova_of_steps_is_its_closed_form():
    """Steps of a and 1 at one half have variances a^2 / 4 and 1 / 4."""
    found = fanova(forest_of(2.0), np.zeros(3), np.ones(3))
    assert found == pytest.approx([0.8, 0.2, 0.0], abs=0.005) and found.sum() == pytest.approx(1, abs=0.005)


def test_fanova_gives_what_interacts_to_no_single_parameter():
    found = fanova(forest_of(0.0, interaction=True), np.zeros(3), np.ones(3))
    # y is 0, 5, 4, 1 by (high 1, high 2): mean 2.5, total variance 4.25; marginals 2.5 +- 0 and 2 and 3.
    assert found == pytest.approx([0.0, 0.25 / 4.25, 0.0], abs=0.01)


def test_fanova_of_a_tree_is_the_mean_over_a_fine_grid():
    x = np.random.default_rng(1).random((300, 2))
    forest = RandomForestRegressor(n_estimators=1, max_leaf_nodes=12, random_state=0)
    forest.fit(x, np.sin(5 * x[:, 0]) + x[:, 0] * x[:, 1])
    middle = (np.arange(1000) + 0.5) / 1000
    grid = np.stack(np.meshgrid(middle, middle, indexing="ij"), axis=2)
    values = forest.predict(grid.reshape(-1, 2)).reshape(1000, 1000)
    expected = [values.mean(axis=1 - j).var() / values.var() for j in range(2)]
    assert fanova(forest, np.zeros(2), np.ones(2)) == pytest.approx(expected, abs=0.005)


def test_a_constant_forest_explains_nothing():
    x = np.random.default_rng(0).random((20, 2))
    forest = RandomForestRegressor(n_estimators=2).fit(x, np.ones(20))
    assert np.isnan(fanova(forest, np.zeros(2), np.ones(2))).all()


def test_the_parameter_that_makes_the_loss_explains_its_variance():
    found = view_importance(log_of(lambda parameters: np.abs(parameters["brightness"]) * 3), rows=100)
    assert found.names[0] == "brightness" and found.variances[0] > 0.8 and max(found.variances[1:]) < 0.1


def test_rows_of_several_images_are_left_out_of_the_analysis():
    log = log_of(lambda parameters: -parameters["iou"], rows=100)
    log["iou"][:40, 2] = np.nan
    assert view_importance(log).rows == 60


def test_a_pair_that_overlap_alone_selects_is_predicted_by_overlap_and_not_by_chance():
    log = log_of(lambda parameters: -parameters["iou"], rows=450)
    fit, test = ({name: values[part] for name, values in log.items()} for part in (slice(0, 350), slice(350, None)))
    found = predict_selected(fit, test)
    assert found.lowest_iou == 1.0 and found.chance == pytest.approx(1 / 6) and found.rows == 100
    assert found.pairs > 0.4 > found.parameters
    assert found.lines()[1].startswith("sampled parameters")


def test_a_choice_by_nothing_that_was_sampled_is_predicted_by_chance_alone():
    log = log_of(lambda parameters: -parameters["iou"], rows=300)
    rng = np.random.default_rng(0)
    log["views"] = pair_index(4)[rng.integers(0, 6, 300)]
    test = {name: values[:100] for name, values in log.items()} | {"views": pair_index(4)[rng.integers(0, 6, 100)]}
    assert abs(predict_selected(log, test).parameters - 1 / 6) < 0.12


def test_too_few_logged_rows_predict_nothing():
    log = log_of(lambda parameters: -parameters["iou"], rows=100)
    with pytest.raises(DataError, match="10 rows of pairs are logged and predicting needs 50"):
        predict_selected({name: values[:10] for name, values in log.items()})


@pytest.mark.parametrize("split", [False, True])
def test_rows_of_two_images_change_no_prediction(split, monkeypatch):
    log = log_of(lambda parameters: -parameters["iou"], rows=100)
    two = {name: np.concatenate([values[:10], values]) for name, values in log.items()}
    two["iou"][:10, 1] = np.nan
    monkeypatch.setattr("viewkit.pipelines.hard_views.prediction.MAX_TREES", 1)
    found = predict_selected(two, two) if split else predict_selected(two)
    expected = predict_selected(log, log) if split else predict_selected(log)
    assert found == expected and found.lowest_iou == 1.0

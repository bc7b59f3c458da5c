import math

import numpy as np
import pytest
from tiny_chain import CPU, photographs

from viewkit.pipelines.difficulty.config import DifficultyConfig
from viewkit.pipelines.difficulty.measures import area_ratio, corner_distance, cosine_of_pairs, summarise_pairs
from viewkit.pipelines.difficulty.stage import DifficultyStage
from viewkit.pipelines.engine.run import run_stage
from viewkit.pipelines.engine.seeds import row_ids
from viewkit.pipelines.pack.config import PackConfig
from viewkit.pipelines.pack.stage import PackStage
from viewkit.pipelines.views.policies import load_policy
from viewkit.pipelines.views.policy import JointSpec
from viewkit.pipelines.views.recipe import BOX
from viewkit.pipelines.views.sample import sample_recipes
from viewkit.shards.codecs import decode_json
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ConfigError

ENCODER = "timm:test_vit/random"


def test_cosines_distances_and_ratios_have_known_answers():
    features = np.array([[[1.0, 0], [2, 0]], [[1, 0], [0, 3]], [[1, 0], [-1, 0]], [[1, 1], [1, 0]], [[0, 0], [1, 0]]])
    assert cosine_of_pairs(features) == pytest.approx([1, 0, -1, math.sqrt(0.5), 0])
    boxes = np.array([[[0.0, 0, 0.5, 0.5], [0.3, 0.4, 0.5, 0.5]], [[0.5, 0.5, 0.5, 0.5], [0, 0, 1, 1]]])
    sizes = np.array([[10, 10], [100, 200]])
    assert corner_distance(boxes, sizes) == pytest.approx([5, math.hypot(50, 100)])
    assert area_ratio(boxes) == pytest.approx([1, 4])
    found = summarise_pairs(np.array([1.0, 0.0]), boxes, sizes)
    assert (found["sdf"], found["sdf_error"], found["ratio_over_2"]) == pytest.approx((0.5, 0.5, 0.5))
    assert found["distance"] == pytest.approx((0.5 + math.sqrt(0.5)) / 2) and found["pairs"] == 2


def test_a_smaller_beta_moves_the_two_views_apart():
    # Appendix E and fig. 7: the distance falls with beta, although only areas are joint.
    ids, sizes = row_ids([f"{number}" for number in range(6000)]), np.full((6000, 2), 224)
    distance, ratio = [], []
    for beta in (-2.0, 0.0, 2.0):
        policy = load_policy("simsiam").with_joint(JointSpec(beta=beta))
        boxes = sample_recipes(policy, ids, sizes, seed=0, stage="test")[..., BOX].astype(np.float64)
        found = summarise_pairs(np.ones(6000), boxes, sizes)
        distance.append(found["distance"])
        ratio.append(found["log_ratio"])
    assert distance == sorted(distance, reverse=True) and distance[0] > distance[2] + 0.01
    assert ratio == pytest.approx([1.02780, 0.80472, 0.58164], abs=0.02)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    folder = tmp_path_factory.mktemp("difficulty")
    made = Dataset(folder / "d")
    run_stage(PackStage(str(photographs(folder / "photographs"))), PackConfig(rows_per_shard=16), made, CPU)
    return made


def test_joint_crops_are_harder_by_the_factor_and_the_file_says_of_what(dataset):
    plain = DifficultyConfig(encoder=ENCODER, policy="simsiam", rounds=4)
    first = run_stage(DifficultyStage(), plain, dataset, CPU).numbers
    joint = DifficultyConfig(encoder=ENCODER, policy="simsiam", rounds=4, joint_area=-2.0)
    second = run_stage(DifficultyStage(folder="difficulty_joint"), joint, dataset, CPU).numbers
    assert first["pairs"] == second["pairs"] == 4 * dataset.column("images").num_rows
    assert second["ratio_over_2"] > first["ratio_over_2"] + 0.2 and -1 <= second["sdf"] <= 1
    facts = decode_json(dataset.artifact("difficulty_joint").path("difficulty.json").read_bytes())
    assert facts["sdf"] == second["sdf"] and facts["policy"]["joint"][0]["beta"] == -2.0
    assert set(dataset.artifact("difficulty").identity.inputs) >= {"images", "policy"}


def test_what_cannot_be_measured_is_refused_by_name(dataset):
    with pytest.raises(ConfigError, match="call it difficulty or difficulty_NAME"):
        DifficultyStage(folder="runs")
    with pytest.raises(ConfigError, match="difficulty measures pairs; leave it out"):
        DifficultyConfig(encoder=ENCODER, joint_area=0.0, joint_views="large")
    with pytest.raises(ConfigError, match="sigma is joint without effect"):
        DifficultyStage().check(DifficultyConfig(encoder=ENCODER, policy="tiny", joint_blur=0.0))

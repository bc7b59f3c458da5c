"""What is equal in all arms: the specification, the images, the first weights and the order of the images."""

import shutil

import numpy as np
import pytest
import torch
from small_datasets import coloured

from viewkit.pipelines.compare.arms import ARMS
from viewkit.pipelines.compare.equality import refuse_shared_images, refuse_unequal
from viewkit.pipelines.engine.config import make_config
from viewkit.pipelines.engine.contract import Run
from viewkit.pipelines.pretrain.config import PretrainConfig, resolve
from viewkit.pipelines.pretrain.stage import prepare
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ConfigError, DataError

SHARED = {"framework": "moco_v3", "arch": "resnet10_narrow", "steps": 4, "batch_size": 8, "hidden": 16, "dim": 16}


def settings(**options):
    return resolve(make_config(PretrainConfig, {**SHARED, **options}, "test"))


def test_arms_that_differ_in_how_pairs_are_made_are_equal():
    arms = {name: settings(**ARMS[name].options) for name in ARMS}
    assert len(arms) >= 12 and refuse_unequal(arms, other_spec=False) == []
    joint = {"random": settings(policy="stl10", side_px=32), "joint": settings(policy="stl10_jointcrop", side_px=32)}
    assert refuse_unequal(joint, other_spec=False) == []


def policy_file(folder, area):
    folder.mkdir()
    (folder / "mine.toml").write_text(f'base = "moco_v2"\n[[views]]\narea = [{area}, 1.0]\n')
    return settings(policy=str(folder / "mine.toml"))


def test_policy_files_are_read_where_they_lie(tmp_path, monkeypatch):
    """In the working folder lies another file of their name, in which nothing differs."""
    policy_file(tmp_path / "here", 0.3)
    monkeypatch.chdir(tmp_path / "here")
    ours, theirs = (policy_file(tmp_path / name, area) for name, area in (("ours", 0.1), ("theirs", 0.2)))
    assert refuse_unequal({"random": ours, "other": ours}, other_spec=False) == []
    with pytest.raises(ConfigError, match="policy's views is"):
        refuse_unequal({"random": ours, "other": theirs}, other_spec=False)
    monkeypatch.chdir(tmp_path)
    assert refuse_unequal({"random": ours, "other": ours}, other_spec=False) == []


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"policy": "moco_v2"}, "policy's views is"),
        ({"policy": "cifar"}, "different specifications"),
        ({"side_px": 40}, "side_px is 32 and 40"),
        ({"crop": "torchvision"}, "crop is None and torchvision"),
        ({"centre_suppression": 0.1}, "centre_suppression is None and 0.1"),
        ({"crop_box": 0.1}, "crop_box is None and 0.1"),
        ({"select": "stored", "other_policy": True}, "other_policy is False and True"),
    ],
)
def test_other_specifications_are_refused_in_one_line_unless_allowed(options, says):
    arms = {"random": settings(), "other": settings(**options)}
    with pytest.raises(ConfigError, match=says) as error:
        refuse_unequal(arms, other_spec=False)
    assert "\n" not in str(error.value) and "--other-spec" in str(error.value)
    assert says in " ".join(refuse_unequal(arms, other_spec=True))


@pytest.mark.parametrize("options", [{"arch": "resnet18_cifar"}, {"batch_size": 16}, {"steps": 5}])
def test_other_networks_batches_and_steps_are_refused_whatever_is_allowed(options):
    with pytest.raises(ConfigError, match=next(iter(options))):
        refuse_unequal({"random": settings(), "other": settings(**options)}, other_spec=True)


def test_other_settings_are_compared_and_said():
    (note,) = refuse_unequal({"random": settings(), "slow": settings(lr=0.001)}, other_spec=False)
    assert note == "arm 'slow' also differs from 'random' in lr"


def test_test_images_among_the_training_images_are_named(tmp_path):
    train, test = coloured(tmp_path / "train", 4, seed=0), coloured(tmp_path / "test", 4, seed=1)
    refuse_shared_images(train.column("images"), test.column("images"))
    again = coloured(tmp_path / "again", 2, seed=0, shift=1)  # the first images of train, with other labels
    with pytest.raises(DataError, match=r"6 of the test images .* are training images, too \(c0-0 is c0-0, "):
        refuse_shared_images(train.column("images"), again.column("images"))


ARMS_OF_FRESH_VIEWS = ("random", "jointcrop", "hard", "easy", "lowest_iou", "loss_avg", "dsf")


def begun(dataset, options, seed):
    """First weights of everything that is trained, and the keys of two epochs in order."""
    run = Run(dataset, dataset.path / "runs" / "none", "pretrain", seed=seed)
    training = prepare(resolve(make_config(PretrainConfig, {**SHARED, "seed": seed, **options}, "test")), run)
    loader = training.source.loader
    keys = [[sample.key for sample in batch] for epoch in range(2) for batch in loader.epoch(epoch)]
    return training.framework.state_dict(), keys


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return coloured(tmp_path_factory.mktemp("paired") / "train", 8, seed=0)


@pytest.mark.parametrize("arm", ARMS_OF_FRESH_VIEWS[1:])
def test_the_same_seed_gives_every_arm_the_same_first_weights_and_order_of_images(images, arm):
    ours, theirs = (begun(images, ARMS[name].options, 3) for name in (arm, "random"))
    assert ours[1] == theirs[1] and ours[0].keys() == theirs[0].keys()
    assert all(torch.equal(ours[0][name], theirs[0][name]) for name in ours[0])


@pytest.mark.slow
def test_arms_of_stored_pairs_and_generated_views_are_paired_too(chain, tmp_path):
    dataset = Dataset(shutil.copytree(chain.dataset.path, tmp_path / "data"))
    policy = {"policy": "strengthened"}  # that of the stored pairs
    weights, keys = begun(dataset, policy, 3)
    stored = ("stored", "vs2fi", "similar", "overlap", "most_overlap", "combined", "placebo", "stored_quality")
    for arm in (*stored, "generated"):
        k_sc = {"k_sc": 0.0} if arm == "vs2fi" else {}
        ours = begun(dataset, {**policy, **ARMS[arm].options, **k_sc}, 3)
        assert ours[1] == keys and all(torch.equal(ours[0][name], weights[name]) for name in weights), arm


def test_another_seed_gives_other_weights_and_another_order(images):
    ours, theirs = (begun(images, {}, seed) for seed in (0, 1))
    assert ours[1] != theirs[1] and sorted(np.ravel(ours[1])) == sorted(np.ravel(theirs[1]))
    assert not all(torch.equal(ours[0][name], theirs[0][name]) for name in ours[0])

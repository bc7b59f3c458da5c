from dataclasses import replace
from types import SimpleNamespace

import pytest

from viewkit.pipelines.pairs.same_policy import check_same_policy, differing, follows, interpolation_of, sampled_by
from viewkit.pipelines.views.policies import POLICIES
from viewkit.pipelines.views.policy import IouCeiling, JointSpec
from viewkit.shards.dataset import Dataset
from viewkit.shards.document import digest
from viewkit.shards.errors import RefusedError
from viewkit.shards.identity import Identity

STRENGTHENED = POLICIES["strengthened"]


def made_with(policy):
    return Identity("score", 1, {"policy": policy.name}, {"policy": digest(policy.to_dict())}, {})


def test_normalisation_resizing_name_and_side_do_not_matter_and_all_that_is_sampled_does():
    for name in ("moco_v3_vit", "genview_vit", "byol"):
        assert follows(made_with(STRENGTHENED), POLICIES[name])
    assert follows(made_with(STRENGTHENED), STRENGTHENED.with_side(32))
    first, second = STRENGTHENED.views
    others = [
        *(POLICIES[name] for name in ("moco_v3", "simclr", "dsf_cifar")),
        *(
            replace(STRENGTHENED, views=(replace(first, **{field: value}), second))
            for field, value in (("area", (0.2, 1.0)), ("p_flip", 0.0), ("sigma", (0.1, 1.0)), ("centre", 0.6))
        ),
        STRENGTHENED.with_joint(JointSpec()),
        replace(STRENGTHENED, iou=IouCeiling()),
        replace(STRENGTHENED, views=(second, first)),
    ]
    assert not any(follows(made_with(STRENGTHENED), policy) for policy in others)


def test_a_policy_with_changes_of_its_own_name_is_not_advised(tmp_path, monkeypatch):
    changed = made_with(STRENGTHENED.with_joint(JointSpec()))
    monkeypatch.setattr(Dataset, "column", lambda self, name: SimpleNamespace(identity=changed))
    with pytest.raises(RefusedError, match=r"policy 'strengthened' with changes.*write the column again") as error:
        check_same_policy(Dataset(tmp_path), "pairs", STRENGTHENED)
    assert "--policy" not in str(error.value).replace("--other-policy", "")


def test_one_specification_twice_is_one():
    once = replace(POLICIES["simclr"], views=POLICIES["simclr"].views[:1])
    assert sampled_by(once) == sampled_by(POLICIES["simclr"])


def test_a_file_policy_is_told_by_its_content():
    mine = replace(STRENGTHENED, name="mine", views=(replace(STRENGTHENED.views[0], p_flip=0.1),))
    assert follows(made_with(mine), mine) and not follows(made_with(mine), STRENGTHENED)


def test_every_difference_is_named_once():
    said = differing(sampled_by(STRENGTHENED), sampled_by(POLICIES["moco_v3"].with_joint(JointSpec())))
    assert said == ["area (0.08, 1.0) against (0.2, 1.0)", "joint"]


def test_views_are_resized_as_their_named_policy_says_and_bilinearly_where_it_is_not_known():
    of = lambda content: Identity("score", 1, {}, {"policy": digest(content)}, {})  # noqa: E731
    assert interpolation_of(of(POLICIES["byol"].to_dict())) == "bicubic"
    assert interpolation_of(of(POLICIES["moco_v3"].to_dict())) == "bilinear"
    assert interpolation_of(of({"name": "mine"})) == "bilinear"

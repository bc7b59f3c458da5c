"""Do the stored pairs of a run follow the run's own policy? What a policy samples, compared field by field."""

from collections.abc import Mapping
from typing import Any

from viewkit.pipelines.views.policies import POLICIES
from viewkit.pipelines.views.policy import Interpolation, Policy
from viewkit.shards.dataset import Dataset
from viewkit.shards.document import digest
from viewkit.shards.errors import RefusedError
from viewkit.shards.identity import Identity

SIDE_PX = 224
"""Policies are compared at one side, as blur scales with it."""


def sampled_by(policy: Policy) -> dict[str, Any]:
    """Everything that decides the distribution of a view's recipe: all but name, normalisation, resizing and side."""
    content = policy.to_dict()
    specs = content["views"]
    for spec in specs:
        spec.pop("side_px")
        spec["sigma"] = tuple(round(sigma * SIDE_PX / policy.side_px, 9) for sigma in spec["sigma"])
    alike = all(spec == specs[0] for spec in specs)
    return {
        "views": list(specs[:1] if alike else specs),
        "joint": list(content["joint"]),
        "joint_mix": content["joint_mix"] if len(content["joint"]) > 1 else None,
        "iou": content["iou"],
        "crop": content["crop"],
    }


def policy_of(identity: Identity) -> Policy | None:
    """The named policy that a column or artifact was made with; None where it was a file's."""
    found = identity.inputs.get("policy")
    return next((policy for policy in POLICIES.values() if digest(policy.to_dict()) == found), None)


def interpolation_of(identity: Identity) -> Interpolation:
    """How the views behind an identity are resized; bilinear where their policy was a file's, which is not kept."""
    policy = policy_of(identity)
    return "bilinear" if policy is None else policy.interpolation


def follows(identity: Identity, policy: Policy) -> bool:
    """Whether the views behind an identity are sampled as `policy` samples them."""
    if identity.inputs.get("policy") == digest(policy.to_dict()):
        return True
    theirs = policy_of(identity)
    return theirs is not None and sampled_by(theirs) == sampled_by(policy)


def alike(one: Identity, other: Identity) -> bool:
    """Whether the views behind two identities are sampled alike; False where either says nothing of a policy."""
    if one.inputs.get("policy") is not None and one.inputs.get("policy") == other.inputs.get("policy"):
        return True
    policy = policy_of(one)
    return policy is not None and follows(other, policy)


def check_same_policy(dataset: Dataset, pairs: str, policy: Policy) -> None:
    """`RefusedError` naming what differs unless column `pairs` was sampled as the run's policy samples.

    A run on stored pairs and one on pairs sampled anew compare pairs only where both follow one policy; else crops and
    colours are compared at the same time.
    """
    identity = dataset.column(pairs).identity
    if follows(identity, policy):
        return
    theirs = policy_of(identity)
    name = identity.config.get("policy", "another policy") if theirs is None else theirs.name
    if theirs is None and name == policy.name:
        raise RefusedError(
            f"column '{pairs}' was sampled by policy '{name}' with changes, by options of the command that wrote it or "
            "in its file since; write the column again, or allow it with --other-policy"
        )
    what = "other values" if theirs is None else ", ".join(differing(sampled_by(theirs), sampled_by(policy)))
    raise RefusedError(
        f"policy is '{policy.name}', and column '{pairs}' was sampled by '{name}': they differ in {what}; take "
        f"--policy {name} here and in the runs that this one is compared with, score by --policy {policy.name}, or "
        "allow it with --other-policy"
    )


def differing(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> list[str]:
    """``area (0.08, 1.0) against (0.2, 1.0)`` for every field of a view that differs, then the joint parts' names."""
    found: list[str] = []
    views = zip(theirs["views"], ours["views"], strict=False)
    for one, other in views:
        for field in one:
            text = f"{field} {one[field]} against {other[field]}"
            if one[field] != other[field] and text not in found:
                found.append(text)
    if len(theirs["views"]) != len(ours["views"]):
        found.append("the number of view specifications")
    return found + [name for name in ("joint", "joint_mix", "iou", "crop") if theirs[name] != ours[name]]

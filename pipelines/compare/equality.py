"""What must be equal for a comparison to be one: view specification, network and images; and that no test image is
among the training images."""

from collections.abc import Mapping, Sequence
from typing import Any

import xxhash

from viewkit.pipelines.training.method import METHOD
from viewkit.pipelines.training.options import TrainingSettings
from viewkit.pipelines.views.policies import load_policy
from viewkit.shards.codecs import IMAGE_EXTENSIONS, image_field
from viewkit.shards.column import Column
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ConfigError, DataError

SPECIFICATION = ("side_px", "crop", "centre_suppression", "crop_box", "other_policy")
"""Settings that say what a view is, beside the policy; joint distributions and selections are what is compared."""
NETWORK = ("arch", "init", "num_heads", "batch_size", "epochs", "steps")
SHOWN = 3
"""Test images that are named, of those among the training images."""


def specification(settings: TrainingSettings) -> dict[str, Any]:
    """Side, normalisation and distributions of single views; what joins the two views of a pair is left out."""
    policy = {
        f"policy's {name}": value
        for name, value in load_policy(settings.policy).to_dict().items()
        if name not in ("name", "joint")
    }
    values = settings.values()
    return {**policy, **{name: values[name] for name in SPECIFICATION}}


def refuse_unequal(arms: Mapping[str, TrainingSettings], *, other_spec: bool) -> list[str]:
    """Sentences about what differs without being refused. arms: name -> settings of its run.

    `ConfigError` for networks that differ, and for view specifications that do, unless `other_spec`.
    """
    first, *others = arms
    specs_of = {arm: specification(settings) for arm, settings in arms.items()}
    notes = []
    for other in others:
        ours, theirs = arms[first].values(), arms[other].values()
        for name in NETWORK:
            if ours.get(name) != theirs.get(name):
                raise ConfigError(
                    f"compare: {name} is {ours.get(name)} in arm '{first}' and {theirs.get(name)} in arm '{other}'; "
                    "arms have equal networks, batches and steps, and --lengths runs all of them at several"
                )
        specs = specs_of[first], specs_of[other]
        for name in specs[0]:
            if specs[0][name] == specs[1].get(name):
                continue
            what = f"views of arms '{first}' and '{other}' follow different specifications: {name} is "
            what += f"{_short(specs[0][name])} and {_short(specs[1].get(name))}"
            if not other_spec:
                raise ConfigError(f"compare: {what}; make them equal, or allow it with --other-spec")
            notes.append(what)
        differing = [
            name
            for name in ours
            if ours[name] != theirs.get(name) and name not in (*METHOD, *NETWORK, *SPECIFICATION, "policy")
        ]
        if differing:
            notes.append(f"arm '{other}' also differs from '{first}' in {', '.join(differing)}")
    return notes


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def refuse_other_images(dataset: Dataset, names: Sequence[str]) -> None:
    """`DataError` where some of these runs and evaluations were made before images were added, and others after."""
    made_from: dict[str, list[str]] = {}
    for name in names:
        images = dataset.artifact(name).identity.inputs.get("images")
        if images is not None:
            made_from.setdefault(images, []).append(name)
    if len(made_from) < 2:
        return
    now = dataset.column("images").digest
    before = [name for images, found in made_from.items() if images != now for name in found]
    raise DataError(
        f"compare: {len(before)} of {sum(map(len, made_from.values()))} runs and evaluations were made before images "
        f"were added to {dataset.path} ({', '.join(before[:SHOWN])}{' ...' if len(before) > SHOWN else ''}), so arms "
        "would have other images; add --redo, which makes them anew, or give another --name"
    )


def refuse_shared_images(train: Column, test: Column) -> None:
    """`DataError` naming test images whose very bytes are among the training images.

    Training images of a size in bytes that no test image has are not read.
    """
    tested = {size: {} for size in image_sizes(test).values()}  # type: dict[int, dict[int, str]]
    for key, size in image_sizes(test).items():
        tested[size][_digest(test, key)] = key
    found = [
        (key, tested[size][seen])
        for key, size in image_sizes(train).items()
        if size in tested and (seen := _digest(train, key)) in tested[size]
    ]
    if found:
        named = ", ".join(f"{theirs} is {ours}" for ours, theirs in found[:SHOWN])
        raise DataError(
            f"compare: {len(found)} of the test images in {test.path.parent} are training images, too ({named}); take "
            "them out of one of the two"
        )


def image_sizes(column: Column) -> dict[str, int]:
    """Key -> bytes of its image, by the receipts alone."""
    return dict(column.index.member_sizes(IMAGE_EXTENSIONS))


def _digest(column: Column, key: str) -> int:
    return xxhash.xxh3_64_intdigest(image_field(column.fields(column.place_of[key]))[1])

"""What decides a preset ``auto`` before images and machine do."""

from collections.abc import Mapping
from typing import Any, TypeVar

from viewkit.shards.dataset import Dataset

Name = TypeVar("Name", bound=str)


def settled_preset(dataset: Dataset, artifact: str, presets: Mapping[Name, Any]) -> Name | None:
    """That of the artifact that is there or was begun; without images the first, since `inputs` says what is missing;
    None where it is still to be chosen."""
    if dataset.is_artifact(artifact):
        there = dataset.identity(artifact).config.get("preset")
        for name in presets:
            if name == there:
                return name
    return None if dataset.is_column("images") else next(iter(presets))

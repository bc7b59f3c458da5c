"""What decides a preset or a precision ``auto``: what is there already, else images and machine."""

from collections.abc import Mapping
from typing import Any, TypeVar, get_args

from viewkit.pipelines.training.schedules import AnyPrecision, Precision
from viewkit.shards.dataset import Dataset

Name = TypeVar("Name", bound=str)
PRECISIONS: tuple[Precision, ...] = get_args(Precision)


def settled_preset(dataset: Dataset, artifact: str, presets: Mapping[Name, Any]) -> Name | None:
    """That of the artifact that is there or was begun; without images the first, since `inputs` says what is missing;
    None where it is still to be chosen."""
    if dataset.is_artifact(artifact):
        there = dataset.identity(artifact).config.get("preset")
        for name in presets:
            if name == there:
                return name
    return None if dataset.is_column("images") else next(iter(presets))


def settled_precision(precision: AnyPrecision, dataset: Dataset, artifact: str, device: str) -> Precision:
    """What "auto" means: the precision of the artifact that is there or was begun, else `fastest_precision`."""
    if precision != "auto":
        return precision
    there = dataset.identity(artifact).config.get("precision") if dataset.is_artifact(artifact) else None
    for known in PRECISIONS:
        if known == there:
            return known
    return fastest_precision(device)


def fastest_precision(device: str) -> Precision:
    """bf16 where the device computes in it; else fp32. On CPUs that only emulate it, it is slower."""
    import torch

    if torch.device(device).type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    found = torch.cpu.get_capabilities()
    return "bf16" if found.get("avx512_bf16") or found.get("amx_bf16") else "fp32"

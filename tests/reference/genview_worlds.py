"""Stages that make a small dataset with an untrained estimator, for tests of `generate`."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from viewkit.pipelines.engine.contract import FitStage, MapStage, Run, ShardFn
from viewkit.pipelines.engine.execution import Execution
from viewkit.pipelines.engine.run import run_stage
from viewkit.pipelines.models.checkpoint import save_tensors
from viewkit.pipelines.models.estimator import FACTS, WEIGHTS, EstimatorNetwork
from viewkit.shards.codecs import encode_json, encode_png
from viewkit.shards.dataset import Dataset
from viewkit.shards.row import Reject, Row

CPU = Execution(device="cpu", workers=1, max_rejects=1.0)


@dataclass(frozen=True, kw_only=True)
class DiscsConfig:
    """Bright discs near the centre of dark images."""

    images: Annotated[int, "images"] = 40
    broken: Annotated[str, "key of an image whose bytes are no image"] = ""
    seed: Annotated[int, "seed of every draw"] = 0


@dataclass(frozen=True)
class DiscSources:
    images: int
    notes: tuple[str, ...] = ()

    @property
    def num_rows(self) -> int:
        return self.images

    @property
    def num_shards(self) -> int:
        return -(-self.images // 16)

    def keys(self, shard: int) -> Sequence[str]:
        return [f"disc{place:03d}" for place in range(16 * shard, min(16 * shard + 16, self.images))]

    def rows(self, shard: int) -> Iterator[Row | Reject]:
        return (Row(key, {}) for key in self.keys(shard))


class DiscsStage(MapStage[DiscsConfig]):
    name = "pack"
    writes = "images"

    def reads(self, config: DiscsConfig) -> tuple[str, ...]:
        return ()

    def sources(self, config: DiscsConfig, dataset: Dataset) -> DiscSources:
        return DiscSources(config.images)

    def prepare(self, config: DiscsConfig, run: Run) -> ShardFn:
        def images(rows: Iterator[Row]) -> Iterator[Row | Reject]:
            for row in rows:
                rng = run.generator(row.key)
                png = b"no image" if row.key == config.broken else encode_png(disc(rng))
                yield Row(row.key, {"png": png, "json": encode_json({})})

        return images


def disc(rng):
    height, width = (int(side) for side in rng.integers(32, 41, 2))
    y, x = np.mgrid[:height, :width]
    cy, cx = height / 2 + rng.uniform(-5, 5), width / 2 + rng.uniform(-5, 5)
    inside = (y - cy) ** 2 + (x - cx) ** 2 < rng.uniform(7, 13) ** 2
    colour = rng.uniform(150, 255, 3)
    image = np.where(inside[..., None], colour, 40) + rng.normal(0, 12, (height, width, 3))
    return image.clip(0, 255).astype(np.uint8)


@dataclass(frozen=True, kw_only=True)
class UntrainedConfig:
    seed: Annotated[int, "seed of every draw"] = 0


class UntrainedStage(FitStage[UntrainedConfig]):
    name = "estimator"
    writes = "estimator"

    def reads(self, config: UntrainedConfig) -> tuple[str, ...]:
        return ("images",)

    def fit(self, config: UntrainedConfig, run: Run) -> dict[str, int]:
        facts = {
            "arch": "vit_pico_patch4",
            "side_px": 32,
            "start": "moco_v3",
            "num_heads": None,
            "hidden": 16,
            "dim": 8,
            "mean": [0.5] * 3,
            "std": [0.25] * 3,
            "tau": 0.2,
        }
        network = EstimatorNetwork("vit_pico_patch4", 32, init="moco_v3", hidden=16, dim=8, seed=config.seed)
        save_tensors(run.folder / WEIGHTS, network.state_dict())
        (run.folder / FACTS).write_text(json.dumps(facts))
        return {}


def discs_dataset(path, **options):
    dataset = Dataset(path)
    run_stage(DiscsStage(), DiscsConfig(**options), dataset, CPU)
    run_stage(UntrainedStage(), UntrainedConfig(), dataset, CPU)
    return dataset

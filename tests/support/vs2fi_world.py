"""A small dataset with images, an untrained estimator and generated views, for the stages of VS-2FI."""

from pathlib import Path

import numpy as np

from viewkit.pipelines.models.checkpoint import save_tensors
from viewkit.pipelines.models.estimator import FACTS, WEIGHTS, Estimator, EstimatorNetwork
from viewkit.pipelines.views.policy import IMAGENET_MEAN, IMAGENET_STD
from viewkit.shards.artifact import IDENTITY, RECEIPT, finish_artifact
from viewkit.shards.codecs import encode_json, encode_png
from viewkit.shards.dataset import Dataset
from viewkit.shards.files import make_folder, write_atomic
from viewkit.shards.identity import Identity, write_identity
from viewkit.shards.row import Reject, Row
from viewkit.shards.writer import ShardWriter

SIDE_PX = 32


def pictures(count, seed=0):
    """PNG bytes of `count` smooth random pictures of differing sizes and colours."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        height, width = rng.integers(36, 60, 2)
        corners = rng.integers(0, 256, (4, 3))
        y, x = np.linspace(0, 1, height)[:, None, None], np.linspace(0, 1, width)[None, :, None]
        smooth = (corners[0] * (1 - y) + corners[1] * y) * (1 - x) + (corners[2] * (1 - y) + corners[3] * y) * x
        noise = rng.integers(-30, 31, (height, width, 1))
        found.append(encode_png((smooth + noise).clip(0, 255).astype(np.uint8)))
    return found


def write_column(dataset, name, outcomes, shard_rows, stage="pack", inputs=None):
    folder = dataset.path / name
    make_folder(folder)
    cuts = range(0, len(outcomes), shard_rows)
    identity = Identity(stage, 1, {"of": name}, inputs or {}, {"shards": len(cuts), "rows": len(outcomes)})
    write_identity(folder / "column.json", identity)
    for shard, start in enumerate(cuts):
        with ShardWriter(folder, shard, identity.digest) as writer:
            for outcome in outcomes[start : start + shard_rows]:
                writer.write(outcome)
            writer.finish()


def make_images(path: Path, count=40, shard_rows=16) -> Dataset:
    dataset = Dataset(path)
    make_folder(path)
    write_column(
        dataset, "images", [Row(f"row{k:04d}", {"png": png}) for k, png in enumerate(pictures(count))], shard_rows
    )
    return dataset


def make_genview(dataset, missing=(), seed=7, reason="no_foreground") -> None:
    """Generated views for every image but the keys in `missing`, which are rejects of the column for that reason."""
    images = dataset.column("images")
    made = pictures(images.num_rows, seed)
    outcomes = [
        Reject(key, reason) if key in missing else Row(key, {"png": png, "json": encode_json({})})
        for key, png in zip(images.keys(), made, strict=True)
    ]
    write_column(dataset, "genview", outcomes, len(images.receipt(0).rows), stage="generate")


def make_estimator(dataset, seed=0, tau=0.2, mean=IMAGENET_MEAN, side_px=SIDE_PX, arch="vit_pico_patch8") -> Estimator:
    """An artifact of fresh weights; other arguments give another digest."""
    facts = {
        "arch": arch, "start": "timm", "num_heads": None, "hidden": 32, "dim": 16,
        "side_px": side_px, "mean": list(mean), "std": list(IMAGENET_STD), "tau": tau,
    }  # fmt: skip
    network = EstimatorNetwork(facts["arch"], side_px, init="timm", hidden=32, dim=16, seed=seed)
    folder = dataset.path / "estimator"
    make_folder(folder)
    for name in (IDENTITY, RECEIPT):  # of the one before: an identity is never written over
        (folder / name).unlink(missing_ok=True)
    save_tensors(folder / WEIGHTS, network.state_dict())
    write_atomic(folder / FACTS, encode_json(facts))
    identity = Identity("estimator", 1, {"seed": seed}, {}, {})
    write_identity(folder / IDENTITY, identity)
    finish_artifact(folder, identity.digest, {}, ())
    return Estimator.load(dataset.artifact("estimator"))

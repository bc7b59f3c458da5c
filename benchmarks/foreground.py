"""Foreground masks against annotated ones: intersection over union for either sign of the component.

    python benchmarks/foreground.py DATASET [--fit DATASET] [--estimator DATASET | --encoder timm:NAME ...]

DATASET is packed from COCO with panoptic masks: every row holds an image, KEY.mask.png (a number a segment) and, in
KEY.json under metadata.objects, which numbers are things. Foreground is what is a thing. A token is foreground where
things cover half of its patch. The component is fitted on the images of --fit (the same dataset if it is not given),
at most 1000 of them, and the sign is decided without looking at the masks. For comparison: tokens drawn by chance, and
the tokens nearest the centre, both of the same share.
"""

import argparse
import io
import json
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float64
from PIL import Image

from viewkit.pipelines.encoders.encoder import Encoder
from viewkit.pipelines.encoders.open import open_encoder
from viewkit.pipelines.encoders.preprocess import Preprocess
from viewkit.pipelines.engine.seeds import smallest
from viewkit.pipelines.foreground.artifact import project
from viewkit.pipelines.foreground.component import fit_component
from viewkit.pipelines.foreground.covariance import Moments
from viewkit.pipelines.foreground.share import fit_threshold
from viewkit.pipelines.foreground.sign import Evidence, flat_patches, released_sign, resolve_sign, sign_evidence
from viewkit.shards.codecs import decode_image, decode_json
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import DataError

MAX_IMAGES = 1000
BATCH = 16
Masks = Bool[np.ndarray, "n t"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("dataset", type=Path, help="packed from COCO with panoptic masks")
    parser.add_argument("--fit", type=Path, help="dataset the component is fitted on (default: the same)")
    parser.add_argument("--encoder", default="estimator", help="as --encoder of viewkit generate (default estimator)")
    parser.add_argument("--estimator", type=Path, help="dataset that holds the estimator (default: the same)")
    parser.add_argument("--weights", type=Path, help="folder of a generator, for an encoder in it")
    parser.add_argument("--share", type=float, default=0.40, help="share of the tokens that is foreground")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    o = parser.parse_args()
    encoder = open_encoder(o.encoder, Dataset(o.estimator or o.dataset), weights=o.weights, device=o.device)
    numbers = measure(Dataset(o.dataset), Dataset(o.fit or o.dataset), encoder, o.share)
    if o.json:
        print(json.dumps(numbers, indent=2))
        return
    for name, value in numbers.items():
        print(f"{name:32} {value:.3f}" if isinstance(value, float) else f"{name:32} {value}")


def measure(annotated: Dataset, fitted: Dataset, encoder: Encoder, share: float) -> dict[str, object]:
    moments, vectors = None, []
    for _, tokens, flat in outputs(fitted, encoder):
        moments = moments or Moments(tokens.shape[2])
        for each in tokens:
            moments.add(each)
        vectors.append((tokens, flat))
    if moments is None:
        raise DataError(f"{fitted.path}: holds no images")
    component = fit_component(moments.covariance(), moments.mean())
    scores = np.concatenate([project(tokens, component.vector) for tokens, _ in vectors])
    evidence = sign_evidence(
        scores.reshape(-1, *encoder.grid),
        np.concatenate([flat for _, flat in vectors]),
        released_sign(component.vector),
    )
    seen, truth = [], []
    for keys, tokens, _ in outputs(annotated, encoder):
        seen.append(project(tokens, component.vector))
        truth += [things(annotated, key, encoder) for key in keys]
    projected, masks = np.concatenate(seen), np.stack(truth)
    iou = {}
    for sign in (1, -1):
        threshold = fit_threshold(sign * scores.ravel(), share)
        iou[sign] = overlap(sign * projected > threshold, masks)
    return {
        "images": len(masks),
        "tokens of an image": masks.shape[1],
        "tokens that are things": float(masks.mean()),
        "IoU with sign +": iou[1],
        "IoU with sign -": iou[-1],
        "IoU by chance": overlap(np.random.default_rng(0).random(masks.shape) < share, masks),
        "IoU of the centre": overlap(np.broadcast_to(centre(encoder.grid, share), masks.shape), masks),
        "sign that is chosen": chosen(evidence),
        "t, centre against border": evidence.t,
        "skewness": evidence.skewness,
        "flat patches": evidence.flat,
        "variance explained": component.explained,
        "eigenvalue ratio": component.eigenvalue_ratio,
        "largest channel's share": component.largest_channel_share,
    }


def outputs(dataset: Dataset, encoder: Encoder):  # type: ignore[no-untyped-def]
    """Keys, tokens and flat patches of up to `MAX_IMAGES` images, those with the smallest key hashes."""
    images = dataset.column("images")
    keys = smallest(images.keys(), MAX_IMAGES)
    for start in range(0, len(keys), BATCH):
        part = keys[start : start + BATCH]
        x = encoder.prepare_images([decode_image(images.fields(images.place_of[key])) for key in part])
        tokens = encoder.tokens(x)
        yield part, tokens, flat_patches(x, encoder.preprocess.std, encoder.grid).cpu().numpy()


def things(dataset: Dataset, key: str, encoder: Encoder) -> Bool[np.ndarray, " t"]:
    """Tokens of an image whose patch things cover by half or more."""
    images = dataset.column("images")
    fields = images.fields(images.place_of[key])
    if "mask.png" not in fields:
        raise DataError(f"{dataset.path}: {key} has no mask.png; pack COCO with panoptic masks")
    objects = decode_json(fields["json"])["metadata"]["objects"]
    with Image.open(io.BytesIO(fields["mask.png"])) as file:
        mask = np.isin(np.asarray(file), [each["value"] for each in objects if each["isthing"]])
    see = encoder.preprocess
    nearest = Preprocess(see.resize_px, see.side_px, see.mean, see.std, Image.Resampling.NEAREST)
    shown = nearest.crop(np.repeat(mask[..., None].astype(np.uint8), 3, axis=2))[..., 0]
    gh, gw = encoder.grid
    rows, columns = see.side_px // gh, see.side_px // gw
    patches = shown[: gh * rows, : gw * columns].reshape(gh, rows, gw, columns)
    return patches.mean(axis=(1, 3)).ravel() >= 0.5


def overlap(found: Masks, truth: Masks) -> float:
    """Intersection over union of all tokens together."""
    return float((found & truth).sum() / (found | truth).sum())


def centre(grid: tuple[int, int], share: float) -> Bool[np.ndarray, " t"]:
    """The share of the tokens that lies nearest the middle."""
    y, x = np.mgrid[: grid[0], : grid[1]]
    distance: Float64[np.ndarray, " t"] = np.hypot(y - (grid[0] - 1) / 2, x - (grid[1] - 1) / 2).ravel()
    return np.asarray(distance.argsort(kind="stable").argsort(kind="stable") < round(share * distance.size))


def chosen(evidence: Evidence) -> str:
    try:
        return "+" if resolve_sign(evidence, "auto") > 0 else "-"
    except DataError as error:
        return f"open: {str(error).partition('remains open: ')[2].partition(';')[0]}"


if __name__ == "__main__":
    with torch.inference_mode():
        main()

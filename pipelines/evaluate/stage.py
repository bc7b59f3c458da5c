"""`viewkit evaluate`: accuracies of one run's frozen encoder, written beside the run."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Int
from torch import Tensor

from viewkit.pipelines.evaluate.config import EvaluateConfig
from viewkit.pipelines.evaluate.features import RESIZE, FrozenEncoder, extract_features
from viewkit.pipelines.evaluate.labelled import Labelled, find_labelled, read_labelled, same_classes
from viewkit.pipelines.evaluate.linear import STRENGTHS
from viewkit.pipelines.evaluate.probes import run_probes
from viewkit.pipelines.models.backbone import Backbone
from viewkit.pipelines.models.encoder import EncoderFacts, load_encoder
from viewkit.pipelines.stage import FitStage, Run
from viewkit.shards.codecs import encode_json
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ConfigError, DataError
from viewkit.shards.files import write_whole

RESULT = "eval.json"


class EvaluateStage(FitStage[EvaluateConfig]):
    """Probes of the run's encoder, trained on the dataset's images and tested on those of another dataset.

    run: a finished run, by its name or its folder DATASET/runs/NAME. test: path of the labelled test dataset. folder:
    name of the result in the run's folder, so that a run can hold several evaluations.
    """

    name: ClassVar[str] = "evaluate"
    shown_as: ClassVar[str] = "runs/NAME/eval"
    holds: ClassVar[Mapping[str, str]] = {
        "eval.json": "top-1, top-5 and mean-per-class accuracy of kNN and linear probes; the run and baselines",
    }

    def __init__(self, run: str, test: str, folder: str = "eval") -> None:
        place = Path(run)
        if place.name in ("", "..") or place.parent.name not in ("", "runs"):
            raise ConfigError(
                f"evaluate: run is {run!r}; it must be the name of a run, or its folder DATASET/runs/NAME"
            )
        if folder in ("", ".", "..") or Path(folder).name != folder or len(folder) > 100:
            raise ConfigError(f"evaluate: folder is {folder!r}; it must be a plain name")
        self.run, self.test, self.folder = place.name, test, folder

    @property
    def writes(self) -> str:
        return f"runs/{self.run}/{self.folder}"

    def reads(self, config: EvaluateConfig) -> tuple[str, ...]:
        return ("images", f"runs/{self.run}")

    def inputs(self, config: EvaluateConfig, dataset: Dataset) -> Mapping[str, str]:
        """Checks for labels too, so that a dataset without them is refused before the folder is claimed."""
        train, test = find_labelled(dataset, "train"), find_labelled(Dataset(self.test), "test")
        digests = {**super().inputs(config, dataset), "test images": test.digest}
        if train.digest == test.digest:
            raise DataError(
                f"evaluate: the test dataset {self.test} holds the very images of {dataset.path}, so every image would "
                "find itself; give a test dataset of other images"
            )
        return digests

    def fit(self, config: EvaluateConfig, run: Run) -> Mapping[str, Any]:
        train, test = read_labelled(run.dataset, "train"), read_labelled(Dataset(self.test), "test")
        classes = same_classes(train, test)
        backbone, facts = load_encoder(run.dataset.artifact(f"runs/{self.run}"))
        encoders = {"encoder": freeze(backbone, facts, run.device)}
        if config.baselines:
            encoders["untrained"] = freeze(facts.fresh(), facts, run.device)

        def features(part: Labelled) -> dict[str, Tensor]:
            pixels_px = config.pixels_px if config.baselines else None
            return extract_features(
                part.samples(), encoders, pixels_px=pixels_px, device=run.device, advance=run.progress.advance
            )

        run.progress.start(self.name, len(train.labels) + len(test.labels), "images")
        train_features, test_features = features(train), features(test)
        if "pixels" in train_features:
            mean = train_features["pixels"].mean(dim=0)
            train_features["pixels"] -= mean
            test_features["pixels"] -= mean
        train_labels, test_labels = (np.searchsorted(classes, part.labels) for part in (train, test))
        probes = {}
        for name in train_features:
            run.progress.message(f"evaluate: probes on {name}")
            probes[name] = run_probes(
                train_features[name],
                train_labels,
                test_features[name],
                test_labels,
                config=config,
                rng=run.generator("split"),
                whose=f"'{name}' of run '{self.run}'",
            )
        result = {
            "run": self.run,
            "arch": facts.arch,
            "side_px": facts.side_px,
            "data": describe_data(train_labels, test_labels),
            "protocol": describe_protocol(config, facts.side_px),
            "probes": probes,
        }
        write_whole(run.folder / RESULT, encode_json(result))
        return {f"{name} {probe['name']}": probe["top1"] for name, results in probes.items() for probe in results}


def freeze(backbone: Backbone, facts: EncoderFacts, device: str) -> FrozenEncoder:
    module = backbone.to(device).eval().requires_grad_(False)
    return FrozenEncoder(module, facts.side_px, facts.mean, facts.std)


def describe_data(train: Int[np.ndarray, " m"], test: Int[np.ndarray, " n"]) -> dict[str, float | int]:
    """Sizes, and the accuracy of always answering the test images' most frequent class."""
    return {
        "num_train": len(train),
        "num_test": len(test),
        "num_classes": int(test.max()) + 1,
        "most_frequent_class": float(np.bincount(test).max() / len(test)),
    }


def describe_protocol(config: EvaluateConfig, side_px: int) -> dict[str, str]:
    """How the numbers came about, in words for the report."""
    strengths = ", ".join(f"{strength:g}" for strength in STRENGTHS)
    protocol = {
        "images": f"{RESIZE}, to {side_px} px; no augmentation; the encoder is frozen",
        "kNN": f"cosine; the k nearest training images vote with exp(cosine / {config.tau:g})",
    }
    if config.linear:
        protocol["linear"] = (
            "logistic regression on standardised features (L-BFGS, at most "
            f"{config.max_iterations} iterations for each C); C, one of {strengths}, is chosen on "
            f"{config.split_share:.0%} of the training images, held out of each class, then the probe is fitted again "
            "on all of them; the test images take no part in the choice"
        )
    if config.baselines:
        protocol["pixels"] = (
            f"{RESIZE}, to {config.pixels_px} px, less the mean training image: no encoder, the same probes"
        )
        protocol["untrained"] = "the run's encoder with the weights it began with, the same probes"
    return protocol

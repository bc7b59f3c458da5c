"""Probes on augmented views, which need the network itself: linear ones behind it, and fine-tuning it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from viewkit.pipelines.encoders.backbones import BackboneEncoder
from viewkit.pipelines.encoders.encoder import FeatureExtractor
from viewkit.pipelines.engine.contract import Run
from viewkit.pipelines.evaluate.accuracy import measured_and_predicted, over_seeds
from viewkit.pipelines.evaluate.augmented import ViewSource
from viewkit.pipelines.evaluate.config import EvaluateConfig
from viewkit.pipelines.evaluate.features import extract_features
from viewkit.pipelines.evaluate.finetune import BY_OPTIMISER, PUBLISHED, TuneSettings, finetune
from viewkit.pipelines.evaluate.labelled import Labelled, labelled_part
from viewkit.pipelines.evaluate.sweep import Batch, draw_weights, sweep_rates
from viewkit.pipelines.pairs.samples import SampleReader

MOCO_V3_RATES: dict[Literal["vit", "resnet"], float] = {"resnet": 0.1, "vit": 3.0}
"""At 256 images a batch: the reference commands of MoCo v3's repository (CONFIG.md)."""


@dataclass(frozen=True)
class Data:
    """Labelled images of both sides. Labels: 0 ... c - 1. held: training rows that choose a learning rate.

    reader: decodes training images, and keeps them while they fit.
    """

    train: Labelled
    train_labels: Int[np.ndarray, " m"]
    test: Labelled
    test_labels: Int[np.ndarray, " n"]
    held: Bool[np.ndarray, " m"]
    reader: SampleReader

    @property
    def num_classes(self) -> int:
        return int(self.train_labels.max()) + 1


@dataclass(frozen=True)
class NetworkProbes:
    """One encoder and everything its probes need. train, test: its features of centre crops."""

    encoder: BackboneEncoder
    train: Float[Tensor, "m d"]
    test: Float[Tensor, "n d"]
    data: Data
    config: EvaluateConfig
    run: Run

    def measure(self, probe: str) -> list[dict[str, Any]]:
        """The results of `augmented`, `moco_v3`, `semi` or `finetune`; none for any other probe."""
        everything = np.arange(len(self.data.train_labels))
        if probe == "augmented":
            return [self.linear(probe, self.config.rates_tried())]
        if probe == "moco_v3":
            return [self.linear(probe, (MOCO_V3_RATES[self.encoder.model.kind],))]
        if probe == "finetune":
            return [self.tuned(probe, everything)]
        if probe != "semi":
            return []
        keys, labels = self.data.train.column.keys(), self.data.train_labels
        return [
            self.tuned(f"semi{100 * share:g}", everything[labelled_part(keys, labels, share)])
            for share in self.config.shares_taken()
        ]

    def linear(self, name: str, rates: Sequence[float]) -> dict[str, Any]:
        """A linear classifier behind the frozen encoder, which sees new views in every epoch."""
        config, device = self.config, self.run.device
        train, test = self.train.to(device), self.test.to(device)
        labels = torch.from_numpy(self.data.train_labels).to(device)
        self.run.progress.start(f"evaluate {name}", config.seeds * config.epochs, "epochs")
        sweeps = []
        for seed in range(config.seeds):
            source = self.source(name, seed, np.arange(len(labels)), config.batch_size)
            sweeps.append(
                sweep_rates(
                    EmbeddedEpochs(source, self.encoder),
                    train,
                    labels,
                    test,
                    rates=rates,
                    held=self.data.held,
                    epochs=config.epochs,
                    batch_size=config.batch_size,
                    first=self.first(name, seed),
                    advance=self.run.progress.advance,
                )
            )
        return {
            "name": name,
            "rates": [sweep.rate for sweep in sweeps],
            "split_accuracies": [sweep.split_accuracy for sweep in sweeps],
            **over_seeds([measured_and_predicted(sweep.scores, self.data.test_labels) for sweep in sweeps]),
        }

    def tuned(self, name: str, rows: Int[np.ndarray, " k"]) -> dict[str, Any]:
        """The whole network fine-tuned on `rows` of train, measured on centre crops of the test images."""
        config, encoder = self.config, self.encoder
        settings = tune_settings(encoder.model.kind, config)
        self.run.progress.start(f"evaluate {name}", config.seeds * config.tune_epochs, "epochs")
        measured = []
        for seed in range(config.seeds):
            network = finetune(
                encoder.model,
                self.source(name, seed, rows, config.tune_batch_size).epoch,
                self.first(name, seed),
                settings=settings,
                epochs=config.tune_epochs,
                advance=self.run.progress.advance,
            )
            scorer = FeatureExtractor(network, encoder.side_px, encoder.mean, encoder.std, self.run.device)
            scores = extract_features(
                self.data.test.samples(), {"scores": scorer}, pixels_px=None, device=self.run.device
            )["scores"]
            measured.append(measured_and_predicted(scores.numpy(), self.data.test_labels))
        return {"name": name, "num_train": len(rows), **over_seeds(measured)}

    def source(self, name: str, seed: int, rows: Int[np.ndarray, " k"], batch_size: int) -> ViewSource:
        return ViewSource(
            self.data.train,
            self.data.train_labels,
            rows,
            self.encoder,
            self.data.reader,
            batch_size=batch_size,
            seed=self.config.seed,
            name=f"evaluate/{name}/{seed}",
            device=self.run.device,
        )

    def first(self, name: str, seed: int) -> Float[Tensor, "c d"]:
        drawn = draw_weights(self.data.num_classes, self.train.shape[1], self.run.generator(name, seed, "weights"))
        return drawn.to(self.run.device)


@dataclass(frozen=True)
class EmbeddedEpochs:
    """The batches of a `ViewSource` as features of a frozen encoder, in evaluation mode."""

    source: ViewSource
    encoder: FeatureExtractor

    def __call__(self, number: int) -> Iterator[Batch]:
        for views, labels, rows in self.source.epoch(number):
            yield self.encoder.features(views), labels, rows


def tune_settings(kind: Literal["vit", "resnet"], config: EvaluateConfig) -> TuneSettings:
    """What is published for the backbone's kind, or for AdamW where it is asked for, with the config's own values."""
    base = PUBLISHED[kind] if config.tune_optimiser is None else BY_OPTIMISER[config.tune_optimiser]
    return TuneSettings(
        optimiser=base.optimiser,
        lr=base.lr if config.tune_lr is None else config.tune_lr,
        head_lr=base.head_lr if config.tune_head_lr is None else config.tune_head_lr,
        weight_decay=base.weight_decay if config.tune_weight_decay is None else config.tune_weight_decay,
    )

"""`viewkit evaluate`: accuracies of one run's encoder, written beside the run."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from viewkit.pipelines.encoders.backbones import BackboneEncoder
from viewkit.pipelines.encoders.encoder import Encoder
from viewkit.pipelines.encoders.names import encoder_reads
from viewkit.pipelines.encoders.open import encoder_inputs, open_encoder, refuse_unused_folder
from viewkit.pipelines.engine.contract import FitStage, Run
from viewkit.pipelines.evaluate.config import EvaluateConfig
from viewkit.pipelines.evaluate.corrupted import (
    CorruptedTest,
    Scorer,
    corruption_results,
    describe_corruptions,
    errors_on,
    level_set,
)
from viewkit.pipelines.evaluate.corruptions.arrays import CorruptedArrays
from viewkit.pipelines.evaluate.corruptions.protocol import PROTOCOLS
from viewkit.pipelines.evaluate.cost import count_passes, time_pass
from viewkit.pipelines.evaluate.features import extract_features
from viewkit.pipelines.evaluate.labelled import (
    Labelled,
    find_labelled,
    hold_out,
    numbered_alike,
    read_labelled,
    same_classes,
)
from viewkit.pipelines.evaluate.network_probes import Data, NetworkProbes
from viewkit.pipelines.evaluate.probes import FeatureProbes
from viewkit.pipelines.evaluate.protocol import describe_data, describe_protocol
from viewkit.pipelines.labels import labels_digest
from viewkit.pipelines.models.predictions import PREDICTIONS, save_predictions
from viewkit.pipelines.models.saved import EncoderFacts, load_encoder
from viewkit.pipelines.pairs.samples import SampleReader
from viewkit.shards.codecs import decode_json, encode_json
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ConfigError, DataError
from viewkit.shards.files import make_folder, read_file, write_atomic
from viewkit.shards.spans import spanned

RESULT = "eval.json"
OF_THE_RUN = ("checkpoint", "tensorboard", "views")
"""Folders in a run's own that no evaluation may be called."""
PARTS = "parts"
"""Folder of finished probes that took long, so that a repeated command goes on after them."""


class EvaluateStage(FitStage[EvaluateConfig]):
    """Probes of the run's encoder, trained on the dataset's images and tested on those of another dataset.

    run: a finished run, by its name or its folder DATASET/runs/NAME. test: path of the labelled test dataset. folder:
    name of the result in the run's folder, so that a run can hold several evaluations. weights, encoder_weights: files
    of ``config.encoder``, as `open_encoder` has them. train: path of another labelled dataset to train the probes on
    (transfer), in place of the run's own. corrupted: folder of the published arrays of corrupted test images.
    """

    name: ClassVar[str] = "evaluate"
    elsewhere: ClassVar[str] = "another --folder"
    version: ClassVar[int] = 4
    resumes: ClassVar[bool] = True
    trains: ClassVar[bool] = True
    scratch: ClassVar[tuple[str, ...]] = (PARTS,)
    shown_as: ClassVar[str] = "runs/NAME/eval"
    holds: ClassVar[Mapping[str, str]] = {
        "eval.json": "top-1, top-5 and mean-per-class accuracy of every probe asked for; of the run and baselines",
        "predictions.safetensors": "labels [n] and ENCODER/PROBE [r n]: class numbers 0 ... c - 1 of the n test images "
        "in the order of their keys, as r repetitions of a probe predicted them (-1: none); digest of the keys",
    }

    def __init__(
        self,
        run: str,
        test: str,
        folder: str = "eval",
        weights: Path | None = None,
        encoder_weights: Path | None = None,
        train: str | None = None,
        corrupted: Path | None = None,
    ) -> None:
        place = Path(run)
        if place.name in ("", "..") or place.parent.name not in ("", "runs"):
            raise ConfigError(
                f"evaluate: run is {run!r}; it must be the name of a run, or its folder DATASET/runs/NAME"
            )
        if folder in ("", ".", "..") or Path(folder).name != folder or len(folder) > 100:
            raise ConfigError(f"evaluate: folder is {folder!r}; it must be a plain name")
        if folder in OF_THE_RUN:
            raise ConfigError(f"evaluate: folder is {folder!r}, which belongs to the run itself; take another name")
        self.run, self.test, self.folder = place.name, test, folder
        self.weights, self.encoder_weights = weights, encoder_weights
        self.train, self.corrupted = train, corrupted

    @property
    def writes(self) -> str:
        return f"runs/{self.run}/{self.folder}"

    def reads(self, config: EvaluateConfig) -> tuple[str, ...]:
        other = () if config.encoder is None else encoder_reads(config.encoder)
        images = ("images",) if self.train is None else ()
        return tuple(dict.fromkeys((*images, f"runs/{self.run}", *other)))

    def train_dataset(self, dataset: Dataset) -> Dataset:
        """Where the probes learn: the run's dataset, unless another one was given."""
        return dataset if self.train is None else Dataset(self.train)

    def check(self, config: EvaluateConfig) -> None:
        if config.encoder is not None:
            refuse_unused_folder(config.encoder, self.weights)
        elif self.weights is not None or self.encoder_weights is not None:
            raise ConfigError("evaluate: --weights and --encoder-weights are given and no encoder; add --encoder")

        if self.corrupted is not None and config.corruptions == "none":
            raise ConfigError(
                f"evaluate: corrupted is {self.corrupted} and nothing is measured on it; add --corruptions"
            )

    def inputs(self, config: EvaluateConfig, dataset: Dataset) -> Mapping[str, str]:
        """Checks for labels too, so that a dataset without them is refused before the folder is claimed."""
        learns = self.train_dataset(dataset)
        train, test = find_labelled(learns, "train"), find_labelled(Dataset(self.test), "test")
        digests = {**super().inputs(config, dataset), "test images": test.digest}
        if self.train is not None:
            digests["train images"] = train.digest
        attached = {"labels" if self.train is None else "train labels": learns, "test labels": Dataset(self.test)}
        for name, labelled in attached.items():
            if (found := labels_digest(labelled, self.name)) is not None:
                digests[name] = found
        if self.corrupted is not None and config.corruptions != "none":
            digests["corrupted images"] = CorruptedArrays(self.corrupted).digest(config.corruptions)
        if config.encoder is not None:
            digests |= encoder_inputs(config.encoder, self.weights, self.encoder_weights)
        if train.digest == test.digest:
            raise DataError(
                f"evaluate: the test dataset {self.test} holds the very images of {learns.path}, so every image would "
                "find itself; give a test dataset of other images"
            )
        return digests

    def fit(self, config: EvaluateConfig, run: Run) -> Mapping[str, Any]:
        data = read_data(self.train_dataset(run.dataset), Dataset(self.test), config)
        encoders, facts = self._encoders(config, run)
        corrupted = self._corrupted(config, data, facts.side_px)
        pixels_px = config.pixels_px if config.baselines else None

        def embedded(part: Labelled) -> dict[str, Tensor]:
            return extract_features(
                part.samples(), encoders, pixels_px=pixels_px, device=run.device, advance=run.progress.advance
            )

        run.progress.start(self.name, len(data.train_labels) + len(data.test_labels), "images")
        train, test = embedded(data.train), embedded(data.test)
        if "pixels" in train:
            mean = train["pixels"].mean(dim=0)
            train["pixels"] -= mean
            test["pixels"] -= mean
        probes: dict[str, list[dict[str, Any]]] = {}
        scorers: dict[str, Mapping[str, Scorer]] = {}
        for name in train:
            features = FeatureProbes(
                train[name],
                data.train_labels,
                test[name],
                data.test_labels,
                data.held,
                config,
                run.generator,
                whose=f"'{name}' of run '{self.run}'",
                device=run.device,
            )
            probes[name] = []
            for probe in config.chosen():
                results = features.measure(probe)
                if isinstance(encoder := encoders.get(name), BackboneEncoder):
                    network = NetworkProbes(encoder, train[name], test[name], data, config, run)
                    part = run.folder / PARTS / f"{name.replace('/', '-')}-{probe}.json"
                    results += once(part, partial(network.measure, probe))
                    run.keep()
                for each in results:
                    run.progress.message(f"evaluate: {name}: {sentence(each)}")
                probes[name] += results
            if name in encoders:
                scorers[name] = features.scorers
        save_predictions(run.folder / PREDICTIONS, probes, data.test.column.keys(), data.test_labels)
        result = {
            "run": self.run,
            "arch": facts.arch,
            "side_px": facts.side_px,
            "data": describe_data(data.train_labels, data.test_labels),
            "protocol": describe_protocol(config, facts.side_px, encoders["encoder"].model.kind),
            "probes": probes,
        }
        numbers = {f"{name} {probe['name']}": probe["top1"] for name, results in probes.items() for probe in results}
        if corrupted is not None:
            found = self._corruptions(config, corrupted, encoders, scorers, run)
            result["corruptions"] = found
            for name, own in found["probes"].items():
                for probe, summed in own.items():
                    for total in ("mce_unnormalised", "mce_alexnet"):
                        if summed[total] is not None:
                            numbers[f"{name} {probe} {total}"] = summed[total]
                            run.progress.message(f"evaluate: {name}: {probe}: {total} {100 * summed[total]:.2f} %")
        write_atomic(run.folder / RESULT, encode_json(result))
        return numbers

    def _corrupted(self, config: EvaluateConfig, data: Data, side_px: int) -> CorruptedTest | None:
        """The corrupted test images that the config asks for, checked."""
        if config.corruptions == "none":
            return None
        arrays = None if self.corrupted is None else CorruptedArrays(self.corrupted)
        levels = level_set(config.corruption_set, side_px) if arrays is None else None
        images = CorruptedTest(data.test, data.train.classes, levels, config.seed, arrays)
        assert len(images.labels)  # reading them checks them
        return images

    def _corruptions(
        self,
        config: EvaluateConfig,
        images: CorruptedTest,
        encoders: Mapping[str, Encoder],
        scorers: Mapping[str, Mapping[str, Scorer]],
        run: Run,
    ) -> dict[str, Any]:
        """``corruptions`` of eval.json. Errors of every corruption are kept as they come, for a repeated command."""
        assert config.corruptions != "none"
        protocol = PROTOCOLS[config.corruptions]
        run.progress.start("evaluate corruptions", len(protocol.kinds), "corruptions")
        errors: list[dict[str, Any]] = []
        for kind in protocol.kinds:
            measure = partial(errors_on, images, kind, protocol.severities, encoders, scorers, run.device)
            errors += once(run.folder / PARTS / f"corruption-{kind}.json", measure)
            run.keep()
            run.progress.advance(1)
        return {
            "protocol": config.corruptions,
            "set": images.levels,
            "said": describe_corruptions(config.corruptions, images.levels, self.corrupted),
            "probes": corruption_results(errors, config.corruptions, against_alexnet=images.of_imagenet),
        }

    def plan(self, config: EvaluateConfig, run: Run) -> Mapping[str, Any]:
        data = read_data(self.train_dataset(run.dataset), Dataset(self.test), config)
        encoders, facts = self._encoders(config, run)
        corrupted = self._corrupted(config, data, facts.side_px)
        images = len(data.train_labels), len(data.test_labels)
        own = sum(isinstance(encoder, BackboneEncoder) for encoder in encoders.values())
        passes = own * count_passes(config, *images) + (len(encoders) - own) * sum(images)
        if corrupted is not None and config.corruptions != "none":
            protocol = PROTOCOLS[config.corruptions]
            passes += len(encoders) * len(protocol.kinds) * len(protocol.severities) * len(corrupted.labels)
        pass_s = max(time_pass(data.train, encoder, run.device) for encoder in encoders.values())
        return {
            "train_images": len(data.train_labels),
            "test_images": len(data.test_labels),
            "images_embedded": passes,
            "estimated_s": round(passes * pass_s, 3),
        }

    def _encoders(self, config: EvaluateConfig, run: Run) -> tuple[dict[str, Encoder], EncoderFacts]:
        """What is measured, by the names of the results, and the facts of the run's encoder."""
        backbone, facts = load_encoder(run.dataset.artifact(f"runs/{self.run}"))
        kinds = {"encoder": backbone, **({"untrained": facts.fresh()} if config.baselines else {})}
        encoders: dict[str, Encoder] = {
            name: BackboneEncoder(each, facts.mean, facts.std, name=name, device=run.device)
            for name, each in kinds.items()
        }
        if config.encoder is not None:
            encoders[config.encoder] = open_encoder(
                config.encoder,
                run.dataset,
                weights=self.weights,
                encoder_weights=self.encoder_weights,
                device=run.device,
            )
        return encoders, facts


@spanned("read data")
def read_data(dataset: Dataset, test: Dataset, config: EvaluateConfig) -> Data:
    """The images of both sides, their classes numbered without gaps, and the rows held out of train.

    Raises `DataError` where the labels do not allow what the config asks for.
    """
    train = read_labelled(dataset, "train")
    sides = train, numbered_alike(train, read_labelled(test, "test"))
    classes = same_classes(*sides)
    train_labels, test_labels = (np.searchsorted(classes, part.labels) for part in sides)
    held = hold_out(sides[0].column.keys(), train_labels, config.split_share)
    swept = [probe for probe in ("sgd", "augmented") if probe in config.chosen()]
    if swept and len(config.rates_tried()) > 1 and not held.any():
        raise DataError(
            f"evaluate: no class of the train dataset {dataset.path} has two images, so none can be held out to choose "
            f"the learning rate of '{swept[0]}' on; give a single one, e.g. --rates 0.1, or more images"
        )
    return Data(sides[0], train_labels, sides[1], test_labels, held, SampleReader())


@spanned("probe")
def once(path: Path, measure: Callable[[], list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """What `measure` gives, or gave before an interruption: kept in `path` until the evaluation is complete."""
    if path.is_file():
        return list(decode_json(read_file(path)))
    results = measure()
    if results:
        make_folder(path.parent)
        write_atomic(path, encode_json(results))
    return results


def sentence(result: Mapping[str, Any]) -> str:
    """One result for the console, in percent; ± is one standard deviation over the repetitions."""
    parts = []
    for key, name in (("top1", "top-1"), ("top5", "top-5"), ("mean_per_class", "mean per class")):
        if result[key] is not None:
            spread = result.get(f"{key}_std")
            parts.append(f"{name} {100 * result[key]:.1f}" + (f" ± {100 * spread:.1f}" if spread is not None else ""))
    return f"{result['name']}: {', '.join(parts)} %"

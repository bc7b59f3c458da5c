"""How the numbers of an evaluation came about, in words for the report."""

from typing import Literal

import numpy as np
from jaxtyping import Int

from viewkit.pipelines.evaluate.config import EvaluateConfig
from viewkit.pipelines.evaluate.features import RESIZE
from viewkit.pipelines.evaluate.linear import STRENGTHS
from viewkit.pipelines.evaluate.network_probes import MOCO_V3_RATES, tune_settings

CROPPED = "random crops of 8 ... 100 % of the area and flips, new in every epoch"


def describe_data(train: Int[np.ndarray, " m"], test: Int[np.ndarray, " n"]) -> dict[str, float | int]:
    """Sizes, and the accuracy of always answering the test images' most frequent class."""
    return {
        "num_train": len(train),
        "num_test": len(test),
        "num_classes": int(test.max()) + 1,
        "most_frequent_class": float(np.bincount(test).max() / len(test)),
    }


def describe_protocol(config: EvaluateConfig, side_px: int, kind: Literal["vit", "resnet"]) -> dict[str, str]:
    """A sentence for the images, for every probe that was asked for, and for the baselines."""
    split = (
        f"{config.split_share:.0%} of the training images, held out of each class by the hash of their keys; the test "
        "images take no part in the choice"
    )
    steps = f"SGD with momentum 0.9 and no weight decay, {config.epochs} epochs, batches of at most {config.batch_size}"
    rates = ", ".join(f"{rate:g}" for rate in config.rates_tried())
    swept = (
        f"one classifier a learning rate ({rates} at 256 images a batch, cosine), all in one pass; the rate is chosen "
        f"on {split}; the classifier reported is trained with that rate on all training images"
    )
    tuning = tune_settings(kind, config)
    tuned = (
        f"the whole network, {tuning.optimiser}, learning rate {tuning.lr:g} (classifier {tuning.head_lr:g}, cosine), "
        f"weight decay {tuning.weight_decay:g}, {config.tune_epochs} epochs, batches of at most "
        f"{config.tune_batch_size}; {CROPPED}"
    )
    shares = ", ".join(f"{share:.3g}" for share in config.shares_taken())
    sentences = {
        "knn": f"cosine; the k nearest training images vote with exp(cosine / {config.tau:g})",
        "linear": (
            "logistic regression on standardised features (L-BFGS, at most "
            f"{config.max_iterations} iterations for each C); C, one of "
            f"{', '.join(f'{strength:g}' for strength in STRENGTHS)}, is chosen on {split}; then it is fitted again on "
            "all training images"
        ),
        "sgd": f"a linear classifier on features of the centre squares; {steps}; {swept}",
        "augmented": f"a linear classifier behind the frozen encoder; {CROPPED}; {steps}; {swept}",
        "moco_v3": (
            f"a linear classifier behind the frozen encoder; {CROPPED}; {steps}; learning rate {MOCO_V3_RATES[kind]:g} "
            "at 256 images a batch, cosine (MoCo v3's fixed recipe, which has 90 epochs and batches of 1024)"
        ),
        "semi": f"{tuned}; on shares {shares} of each class, the smallest hashes of keys, at least one image",
        "finetune": tuned,
    }
    said = {"images": f"{RESIZE}, to {side_px} px; no augmentation unless said; the encoder is frozen unless said"}
    said |= {"kNN" if probe == "knn" else probe: sentences[probe] for probe in config.chosen()}
    if config.seeds > 1 and set(config.chosen()) - {"knn", "linear"}:
        said["seeds"] = f"means over {config.seeds} repetitions of the probes that draw, on the same encoder"
    if config.baselines:
        said["pixels"] = f"{RESIZE}, to {config.pixels_px} px, less the mean training image: no encoder"
        said["untrained"] = "the run's encoder with the weights it began with, the same probes"
    if config.encoder is not None:
        said[config.encoder] = "another frozen encoder, not fine-tuned unless viewkit trained it; the same probes"
    return said

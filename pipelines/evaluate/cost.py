"""What an evaluation costs: forward passes of the encoder, counted, and the time of one, measured here."""

import time
from itertools import islice

from viewkit.pipelines.encoders.encoder import FeatureExtractor
from viewkit.pipelines.evaluate.config import EvaluateConfig
from viewkit.pipelines.evaluate.features import extract_features
from viewkit.pipelines.evaluate.labelled import Labelled
from viewkit.pipelines.training.cost import LEARNING

TIMED = 64
"""Images of one measurement."""


def count_passes(config: EvaluateConfig, num_train: int, num_test: int) -> int:
    """Images that one encoder encodes, those that it learns from counted `LEARNING` times."""
    tuned = {"finetune": [num_train], "semi": [max(1, round(share * num_train)) for share in config.shares_taken()]}
    passes = num_train + num_test
    for probe in config.chosen():
        if probe in ("augmented", "moco_v3"):
            passes += config.seeds * config.epochs * num_train
        for rows in tuned.get(probe, []):
            passes += config.seeds * (LEARNING * config.tune_epochs * rows + num_test)
    return passes


def time_pass(images: Labelled, encoder: FeatureExtractor, device: str) -> float:
    """Seconds per image, to read, decode, render and encode it; measured on a few images after a first batch."""
    samples = list(islice(images.samples(), TIMED))
    extract_features(samples, {"encoder": encoder}, pixels_px=None, device=device)
    started = time.perf_counter()
    again = list(islice(images.samples(), TIMED))
    extract_features(again, {"encoder": encoder}, pixels_px=None, device=device)
    return (time.perf_counter() - started) / len(again)

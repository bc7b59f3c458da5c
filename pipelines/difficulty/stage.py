"""`viewkit difficulty`: pairs are sampled and rendered as a training would, and an encoder compares them."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from viewkit.pipelines.difficulty.config import DifficultyConfig
from viewkit.pipelines.difficulty.measures import cosine_of_pairs, summarise_pairs
from viewkit.pipelines.encoders.encoder import Encoder
from viewkit.pipelines.encoders.names import encoder_reads
from viewkit.pipelines.encoders.open import encoder_inputs, open_encoder, refuse_unused_folder
from viewkit.pipelines.engine.batches import batches
from viewkit.pipelines.engine.contract import FitStage, Run
from viewkit.pipelines.engine.seeds import row_ids, smallest
from viewkit.pipelines.pairs.samples import load_image
from viewkit.pipelines.views.policies import load_policy
from viewkit.pipelines.views.policy import Policy
from viewkit.pipelines.views.recipe import BOX
from viewkit.pipelines.views.sample import sample_recipes, sizes_px
from viewkit.shards.codecs import encode_json
from viewkit.shards.dataset import Dataset
from viewkit.shards.document import digest
from viewkit.shards.errors import ConfigError, DataError
from viewkit.shards.files import write_atomic

RESULT = "difficulty.json"
BATCH = 64
NAME = re.compile(r"difficulty(_[A-Za-z0-9_-]{1,80})?")


class DifficultyStage(FitStage[DifficultyConfig]):
    """folder: ``difficulty`` or ``difficulty_NAME``, so that policies can be compared. weights, encoder_weights: files
    of the encoder, as `open_encoder` has them."""

    name: ClassVar[str] = "difficulty"
    elsewhere: ClassVar[str] = "another --folder"
    shown_as: ClassVar[str] = "difficulty"
    holds: ClassVar[Mapping[str, str]] = {
        "difficulty.json": "mean cosine of pairs (SDF), distance of their corners, ratio of their areas, their overlap",
    }

    def __init__(
        self, weights: Path | None = None, encoder_weights: Path | None = None, folder: str = "difficulty"
    ) -> None:
        if not NAME.fullmatch(folder):
            raise ConfigError(f"--folder is '{folder}'; call it difficulty or difficulty_NAME, e.g. difficulty_joint")
        self.weights, self.encoder_weights, self.folder = weights, encoder_weights, folder

    @property
    def writes(self) -> str:
        return self.folder

    def reads(self, config: DifficultyConfig) -> tuple[str, ...]:
        return ("images", *encoder_reads(config.encoder))

    def check(self, config: DifficultyConfig) -> None:
        refuse_unused_folder(config.encoder, self.weights)
        policy_of(config).check_joint(2)

    def inputs(self, config: DifficultyConfig, dataset: Dataset) -> Mapping[str, str]:
        files = encoder_inputs(config.encoder, self.weights, self.encoder_weights)
        return {**super().inputs(config, dataset), **files, "policy": digest(load_policy(config.policy).to_dict())}

    def fit(self, config: DifficultyConfig, run: Run) -> Mapping[str, Any]:
        encoder = open_encoder(
            config.encoder,
            run.dataset,
            weights=self.weights,
            encoder_weights=self.encoder_weights,
            device=run.device,
            precision=config.precision,
        )
        policy = policy_of(config).with_side(encoder.side_px)
        images = run.dataset.column("images")
        keys = smallest(images.keys(), config.images)
        run.progress.start(self.name, len(keys) * config.rounds, "pairs")
        cosine, boxes, sizes = [], [], []
        for part in batches(keys, BATCH):
            pixels = [load_image(images.fields(images.place_of[key]), run.device) for key in part]
            for number in range(config.rounds):
                found = sizes_px(pixels)
                recipes = sample_recipes(
                    policy,
                    row_ids(part),
                    found,
                    seed=config.seed,
                    stage=run.stage,
                    round=number,
                    num_views=2,
                )
                cosine.append(self._compare(encoder, pixels, recipes))
                boxes.append(recipes[:, :, BOX].astype(np.float64))
                sizes.append(found)
                run.progress.advance(len(part))
        numbers = summarise_pairs(np.concatenate(cosine), np.concatenate(boxes), np.concatenate(sizes))
        facts = {"encoder": dict(encoder.fingerprint()), "policy": policy.to_dict(), **numbers}
        write_atomic(run.folder / RESULT, encode_json(facts))
        return numbers

    def _compare(self, encoder: Encoder, pixels: list[Any], recipes: np.ndarray) -> np.ndarray:
        """Cosines of the pairs of a batch. `DataError` where the encoder gives numbers that are none."""
        index = np.repeat(np.arange(len(pixels)), 2)
        views = encoder.render(pixels, recipes.reshape(-1, recipes.shape[2]), index)
        features = encoder.features(views).cpu().numpy()
        found = cosine_of_pairs(features.reshape(len(pixels), 2, -1))
        if not np.isfinite(found).all():
            raise DataError(f"difficulty: the encoder '{encoder.name}' gives numbers that are not finite")
        return found


def policy_of(config: DifficultyConfig) -> Policy:
    """The policy with the config's changes to what it samples."""
    return config.changed(load_policy(config.policy))

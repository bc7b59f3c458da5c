"""Offline is online: Alg. 1 run during training, written plainly, against the stages and the trainer's selection."""

import io
import json

import numpy as np
import pytest
import torch
import vs2fi as reference
from PIL import Image
from vs2fi_world import make_estimator, make_images

from viewkit.pipelines.engine.execution import Execution
from viewkit.pipelines.engine.run import run_stage
from viewkit.pipelines.engine.seeds import row_ids
from viewkit.pipelines.histograms.config import HistogramsConfig
from viewkit.pipelines.histograms.stage import HistogramsStage
from viewkit.pipelines.pairs.random import RandomPairs
from viewkit.pipelines.pairs.rules import Limits
from viewkit.pipelines.pairs.samples import SampleReader
from viewkit.pipelines.pairs.stored import StoredPairs
from viewkit.pipelines.score.config import ScoreConfig
from viewkit.pipelines.score.stage import ScoreStage
from viewkit.pipelines.views.policies import load_policy
from viewkit.pipelines.views.render.render import render
from viewkit.pipelines.views.sample import sample_recipes, sample_selection
from viewkit.shards.row import Row

ROUNDS, NUM_VIEWS, EPOCHS, COUNT = 3, 5, 3, 24
GAMMA, K_SC, K_AL = 0.1012, 0.55, 4
ON_CPU = Execution(device="cpu", workers=1)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    dataset = make_images(tmp_path_factory.mktemp("online") / "d", count=COUNT, shard_rows=11)
    make_estimator(dataset)
    run_stage(HistogramsStage(), HistogramsConfig(negatives=9, images=20), dataset, ON_CPU)
    run_stage(ScoreStage(), ScoreConfig(rounds=ROUNDS, num_views=NUM_VIEWS, gamma=GAMMA), dataset, ON_CPU)
    return dataset


class Online:
    """The estimator beside a trainer: one image and one view at a time, indicators by the paper's loops."""

    def __init__(self, dataset):
        self.estimator = make_estimator(dataset)
        self.specs = json.loads(dataset.artifact("histograms").path("histograms.json").read_text())
        self.curve = reference.posterior(self.specs["positive"], self.specs["negative"], self.specs["prior_positive"])
        self.policy = load_policy("strengthened").with_side(self.estimator.side_px)

    def choose(self, key, png, epoch):
        """Recipes of the pair that this epoch trains on, and how many pairs both filters left."""
        pixels = np.array(Image.open(io.BytesIO(png)).convert("RGB"))
        recipes = sample_recipes(
            self.policy,
            row_ids([key]),
            np.array([pixels.shape[:2]]),
            seed=0,
            stage="score",
            round=epoch,
            rounds=ROUNDS,
            num_views=NUM_VIEWS,
            pipelines="random",
        )[0]
        embedded = [self.embed(pixels, recipe) for recipe in recipes]
        rated = [self.rate(embedded[i], embedded[j]) for i, j in reference.pairs(NUM_VIEWS)]
        kept = reference.keep([sc for sc, _ in rated], [al for _, al in rated], K_SC, K_AL)
        which, swap, *_ = sample_selection(row_ids([key]), seed=7, stage="pretrain", round=epoch)[0]
        i, j = reference.pairs(NUM_VIEWS)[kept[int(which * len(kept))]]
        return recipes[[j, i] if swap < 0.5 else [i, j]], len(kept)

    def embed(self, pixels, recipe):
        side_px, mean, std = self.estimator.side_px, self.estimator.mean, self.estimator.std
        view = render(
            [torch.from_numpy(pixels)], recipe[None], np.zeros(1, np.int64), side_px=side_px, mean=mean, std=std
        )
        top, exits = self.estimator.embed(view)
        return top[0].tolist(), exits[0].tolist()

    def rate(self, one, other):
        """Eq. 2, 6 and 5."""
        edges = self.specs["similarity_edges"]
        consistency = reference.semantic_consistency(reference.cosine(one[0], other[0]), edges, self.curve)
        p = [
            reference.alignment_score(reference.cosine(a, b), counts, edges, self.specs["tau"])
            for a, b, counts, edges in zip(
                one[1], other[1], self.specs["log_sum"], self.specs["log_sum_edges"], strict=True
            )
        ]
        return consistency, reference.alignment_level(p, GAMMA)


def test_the_trainer_chooses_the_pairs_that_an_online_estimator_chooses_round_by_round(dataset):
    online = Online(dataset)
    images, pairs = dataset.column("images"), dataset.column("pairs")
    trainer = StoredPairs(RandomPairs(online.policy, seed=7, stage="pretrain"), "vs2fi", Limits(k_sc=K_SC, k_al=K_AL))
    reader = SampleReader()
    keys = list(images.keys())[:10]
    samples = [
        reader(Row(key, images.fields(place), {"pairs": pairs.fields(pairs.place_of[key])}))
        for place, key in enumerate(keys)
    ]
    survivors = set()
    for epoch in range(EPOCHS):
        chosen = trainer(samples, epoch).recipes
        for place, key in enumerate(keys):
            recipes, left = online.choose(key, images.fields(place)["png"], epoch)
            np.testing.assert_array_equal(chosen[place], recipes, err_msg=f"{key}, epoch {epoch}")
            survivors.add(left)
    assert len(survivors) > 4, "the filters must decide something for this to be a test"

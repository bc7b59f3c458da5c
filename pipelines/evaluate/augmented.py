"""Augmented views of labelled images: random crops and flips, as linear probes and fine-tuning have them."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from viewkit.pipelines.encoders.encoder import FeatureExtractor
from viewkit.pipelines.engine.seeds import row_ids, stream
from viewkit.pipelines.evaluate.labelled import Labelled
from viewkit.pipelines.evaluate.sweep import Batch, split_evenly
from viewkit.pipelines.pairs.samples import Sample, SampleReader
from viewkit.pipelines.views.policy import Policy, ViewSpec
from viewkit.pipelines.views.sample import sample_recipes, sizes_px
from viewkit.shards.row import Row

CROPS = Policy(name="crops", views=(ViewSpec(area=(0.08, 1.0), p_flip=0.5, p_jitter=0.0, p_grey=0.0),), num_views=1)
"""Random resized crops of 8 ... 100 % of the area at aspect ratios 3/4 ... 4/3, flipped half of the time."""


class ViewSource:
    """Batches of views with their labels; epoch e is the same whenever it is asked for.

    labels: class of every row of `labelled`, 0 ... c - 1. rows: those that take part. name: keeps the random
    streams of one probe and repetition apart from those of another.
    """

    def __init__(
        self,
        labelled: Labelled,
        labels: Int[np.ndarray, " n"],
        rows: Int[np.ndarray, " m"],
        encoder: FeatureExtractor,
        reader: SampleReader,
        *,
        batch_size: int,
        seed: int,
        name: str,
        device: str,
    ) -> None:
        self.labelled, self.rows, self.encoder, self.reader = labelled, rows, encoder, reader
        self.labels = torch.from_numpy(labels).to(device)
        self.batch_size, self.seed, self.name, self.device = batch_size, seed, name, device
        self.keys = labelled.column.keys()

    def epoch(self, number: int) -> Iterator[Batch]:
        """All rows once, in an order of their own; the next batch is decoded while one is worked on."""
        order = stream(self.seed, self.name, "order", number).permutation(self.rows)
        parts = split_evenly(order, self.batch_size)
        with ThreadPoolExecutor(1, thread_name_prefix="evaluate") as pool:
            waiting = pool.submit(self.read, parts[0])
            for part, following in zip(parts, [*parts[1:], None], strict=True):
                samples = waiting.result()
                if following is not None:
                    waiting = pool.submit(self.read, following)
                rows = torch.from_numpy(part).to(self.device)
                yield self.render(samples, number), self.labels[rows], rows

    def read(self, rows: Int[np.ndarray, " b"]) -> list[Sample]:
        return [self.reader(Row(self.keys[row], self.labelled.column.fields(int(row)))) for row in rows]

    def render(self, samples: Sequence[Sample], epoch: int) -> Tensor:
        """One view of every sample [b 3 s s], normalised as the encoder takes it."""
        recipes = sample_recipes(
            CROPS.with_side(self.encoder.side_px),
            row_ids([sample.key for sample in samples]),
            sizes_px([sample.image for sample in samples]),
            seed=self.seed,
            stage=self.name,
            round=epoch,
        )
        images = [sample.image.to(self.device) for sample in samples]
        return self.encoder.render(images, recipes[:, 0], torch.arange(len(samples)))

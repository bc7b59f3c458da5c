"""Augmented views of labelled images: random crops and flips, as linear probes and fine-tuning have them."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from viewkit.pipelines.evaluate.features import FrozenEncoder
from viewkit.pipelines.evaluate.labelled import Labelled
from viewkit.pipelines.evaluate.sweep import Batch, cut
from viewkit.pipelines.seeds import row_ids, stream
from viewkit.pipelines.training.pairs import sizes_of
from viewkit.pipelines.training.samples import Sample, SampleReader
from viewkit.pipelines.views.policy import Policy, ViewLaw
from viewkit.pipelines.views.render import render
from viewkit.pipelines.views.sample import sample_recipes
from viewkit.shards.row import Row

CROPS = Policy(name="crops", views=(ViewLaw(area=(0.08, 1.0), p_flip=0.5, p_jitter=0.0, p_grey=0.0),), num_views=1)
"""Random resized crops of 8 ... 100 % of the area at aspect ratios 3/4 ... 4/3, flipped half of the time."""


class ViewSource:
    """Batches of views with their labels; epoch e is the same whenever it is asked for.

    labels: class of every row of `labelled`, 0 ... c - 1. rows: those that take part. name: keeps the draws of one
    probe and repetition apart from those of another.
    """

    def __init__(
        self,
        labelled: Labelled,
        labels: Int[np.ndarray, " n"],
        rows: Int[np.ndarray, " m"],
        encoder: FrozenEncoder,
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
        parts = cut(order, self.batch_size)
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
        """One view of every sample [b 3 s s], normalised as the encoder wants it."""
        recipes = sample_recipes(
            CROPS.with_side(self.encoder.side_px),
            row_ids([sample.key for sample in samples]),
            sizes_of([sample.image for sample in samples]),
            seed=self.seed,
            stage=self.name,
            round=epoch,
        )
        return render(
            [sample.image.to(self.device) for sample in samples],
            recipes[:, 0],
            torch.arange(len(samples)),
            side_px=self.encoder.side_px,
            mean=self.encoder.mean,
            std=self.encoder.std,
        )

"""Batches of the prepared images, epoch by epoch, for whatever is trained on them."""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Int64

from viewkit.pipelines.distributed import rank, share_of_batch
from viewkit.pipelines.engine.contract import Run
from viewkit.pipelines.generate.own.prepared import Prepared
from viewkit.pipelines.pairs.source import ViewBatch


@dataclass(frozen=True)
class ShuffledImages(ABC):
    """A `loop.Source`: epochs of shuffled images, the same whenever and from whichever step they are started.

    Every process draws for the whole batch and takes its own rows, so several train as one does. The next batch is
    made while the one before is trained on. batch_size: of all processes together. streams: names of the random
    streams of the order and of the batches.
    """

    prepared: Prepared
    run: Run
    batch_size: int
    streams: tuple[str, str] = ("order", "noise")

    @abstractmethod
    def batch(self, places: Int64[np.ndarray, " n"], own: slice, generator: np.random.Generator) -> ViewBatch:
        """The rows `own` of the batch of these images, on the CPU; draws for all of them."""

    @property
    def steps_per_epoch(self) -> int:
        return len(self.prepared.train) // self.batch_size

    def with_batches_of(self, rows: int) -> "ShuffledImages":
        return replace(self, batch_size=rows)

    def epoch(self, epoch: int, start_step: int = 0) -> Iterator[ViewBatch]:
        order_stream, batch_stream = self.streams
        order = self.run.generator(order_stream, epoch).permutation(self.prepared.train)
        share = share_of_batch(self.batch_size)
        own = slice(rank() * share, (rank() + 1) * share)

        def make(step: int) -> ViewBatch:
            places = order[step * self.batch_size : (step + 1) * self.batch_size]
            return self.batch(places, own, self.run.generator(batch_stream, epoch, step))

        with ThreadPoolExecutor(1) as pool:
            pending = pool.submit(make, start_step)
            for step in range(start_step, self.steps_per_epoch):
                started = time.perf_counter()
                batch = pending.result()
                if step + 1 < self.steps_per_epoch:
                    pending = pool.submit(make, step + 1)
                yield on_device(batch, self.run.device, time.perf_counter() - started)


def on_device(batch: ViewBatch, device: str, wait_s: float = 0.0) -> ViewBatch:
    """The same on the device, images in the layout its convolutions are fastest with."""
    views = tuple(view.to(device, memory_format=torch.channels_last) for view in batch.views)
    targets = batch.targets and tuple(
        None if each is None else tuple(x.to(device) for x in each) for each in batch.targets
    )
    return replace(batch, views=views, targets=targets, wait_s=wait_s)

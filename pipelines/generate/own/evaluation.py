"""What a generator makes of held-out images: views at any level, sheets of them, and the table of its quality."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int64, UInt8

from viewkit.pipelines.encoders.encoder import Encoder
from viewkit.pipelines.engine.batches import batches
from viewkit.pipelines.engine.contract import Run
from viewkit.pipelines.generate.generators.own import Own
from viewkit.pipelines.generate.levels import MEASURED
from viewkit.pipelines.generate.measures.calibration import calibrate
from viewkit.pipelines.generate.measures.judge import Picture, embed, joined, judged
from viewkit.pipelines.generate.measures.table import LevelRow, Real, measure_level
from viewkit.pipelines.generate.noising import squared_cosine
from viewkit.pipelines.generate.own.prepared import Prepared

BATCH = 64
"""Views of one pass."""
KNOWN = 10_000
"""Images trained on that copies are looked for among, at most."""
COMPARED = 2_000
"""Images of a Fréchet distance, at most."""
RECOGNISED = 5_000
"""Images that a noised embedding is told from, at most."""
GAP_PX = 2


@dataclass(frozen=True)
class Evaluation:
    """A generator and the held-out images it is measured on. Noise depends on image and number of the view, not on the
    level: so levels are compared on the same noise."""

    own: Own
    prepared: Prepared
    run: Run

    def views(self, places: Sequence[int], level: int, number: int) -> UInt8[np.ndarray, "n s s 3"]:
        """View `number` of each image, at the side of the generator."""
        return np.concatenate([self._sample(part, level, number) for part in batches(places, BATCH)])

    def _sample(self, places: Sequence[int], level: int, number: int) -> UInt8[np.ndarray, "n s s 3"]:
        streams = [self.run.generator("look", place, number) for place in places]
        width, shape = self.prepared.width, self.own.latent_shape
        noise = np.stack([stream.standard_normal(width, dtype=np.float32) for stream in streams])
        latents = np.stack([stream.standard_normal(shape, dtype=np.float32) for stream in streams])
        embedding = torch.from_numpy(self.prepared.embeddings[list(places)])
        condition = self.own.perturb(embedding, torch.full((len(places),), level), torch.from_numpy(noise))
        return self.own.pixels(condition, torch.from_numpy(latents))[0]

    def sheet(self, images: int, levels: Sequence[int]) -> UInt8[np.ndarray, "h w 3"]:
        """The first held-out images, and to the right of each a view at every level."""
        places = self.prepared.held[:images].tolist()
        columns = [self.prepared.pixels[places], *(self.views(places, level, 0) for level in levels)]
        return tiled(columns)

    def rows(self, judge: Encoder, num_views: int) -> Iterator[LevelRow]:
        """A row a level, on all held-out images, judged at the side of the generator."""
        held = self.prepared.held
        real = self._real(judge)
        threshold, everything = real.threshold(), np.arange(len(held))
        self.run.progress.start(self.run.stage, len(MEASURED) * num_views * len(held), "views")
        for level in MEASURED:
            views = []
            for number in range(num_views):
                views.append(judged(judge, list(self.views(held.tolist(), level, number))))
                self.run.progress.advance(len(held))
            yield measure_level(level, views, real, everything, threshold)

    def _real(self, judge: Encoder) -> Real:
        """The held-out images, and some of those trained on."""
        known = self._some(KNOWN)
        features = [embed(judge, self._pictures(part)) for part in batches(known.tolist(), BATCH)]
        sources = [judged(judge, self._pictures(part)) for part in batches(self.prepared.held.tolist(), BATCH)]
        found = np.concatenate(features)
        own = np.full(len(self.prepared.held), -1)
        return Real(joined(sources), found, own, found[:COMPARED], np.ones(len(own), bool))

    def calibration(self) -> dict[int, float]:
        """Level -> share of the noised embeddings of images trained on that are recognised."""
        places = self._some(RECOGNISED)
        z = (torch.from_numpy(self.prepared.embeddings[places]) - self.prepared.mean) / self.prepared.std
        noise = self.run.generator("calibration").standard_normal(z.shape, dtype=np.float32)
        return calibrate(z, torch.from_numpy(noise), squared_cosine())

    def _some(self, count: int) -> Int64[np.ndarray, " m"]:
        """Places of so many of the images trained on, at random."""
        return np.asarray(self.run.generator("known").permutation(self.prepared.train)[:count])

    def _pictures(self, places: Sequence[int]) -> list[Picture]:
        return list(self.prepared.pixels[list(places)])


def tiled(columns: Sequence[UInt8[np.ndarray, "n s s 3"]]) -> UInt8[np.ndarray, "h w 3"]:
    """Pictures of a row side by side, with white gaps."""
    rows = np.stack(columns, axis=1)  # n columns s s 3
    n, count, side = rows.shape[:3]
    step = side + GAP_PX
    sheet = np.full((n * step - GAP_PX, count * step - GAP_PX, 3), 255, np.uint8)
    for i in range(n):
        for j in range(count):
            sheet[i * step : i * step + side, j * step : j * step + side] = rows[i, j]
    return sheet


def shown(calibration: Mapping[int, float]) -> dict[str, float]:
    """As JSON values."""
    return {str(level): round(share, 4) for level, share in calibration.items()}

"""Generator `retrieval`: the other image of the dataset whose embedding is nearest to the perturbed one.

Needs no downloaded weights and no accelerator. Its views are real photographs, their bytes copied unchanged.
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from viewkit.pipelines.encoders.encoder import Encoder
from viewkit.pipelines.foreground.artifact import INDEX
from viewkit.pipelines.foreground.index import block_rows, nearest_other, open_index, resident
from viewkit.pipelines.generate.generators.interface import Failed, Generated, Generator, Setup
from viewkit.pipelines.generate.noising import NoiseSpace, squared_cosine
from viewkit.shards.codecs import image_field
from viewkit.shards.column import Column
from viewkit.shards.errors import DataError


class Retrieval(Generator):
    """index: standardised embeddings of `images` at unit length, row by row. mean, std: what standardises them.

    Noise is added as in unCLIP, in the standardised space and on its schedule, so a level means the same strength.
    """

    name = "retrieval"

    def __init__(
        self,
        encoder: Encoder,
        index: Float[np.ndarray, "m d"],
        mean: Float[Tensor, " d"],
        std: Float[Tensor, " d"],
        images: Column,
    ) -> None:
        if len(index) not in (images.num_rows, *images.earlier.values()):  # new images find theirs among those before
            raise DataError(
                f"generate: the index holds {len(index)} images and the column 'images' {images.num_rows}; delete the "
                "folder 'foreground' of the dataset and rerun 'viewkit generate'"
            )
        self.encoder = encoder
        self.index = resident(index, encoder.device)
        self.images = images
        self.space = NoiseSpace(mean, std, squared_cosine()).to(encoder.device)
        self.block = block_rows(index.shape[1])

    @classmethod
    def create(cls, setup: Setup) -> "Retrieval":
        dataset, foreground = setup.run.dataset, setup.foreground
        index = open_index(dataset.artifact("foreground").path(INDEX))
        return cls(setup.encoder, index, foreground.mean, foreground.std, dataset.column("images"))

    def perturb(
        self, embedding: Float[Tensor, "n d"], level: Int[Tensor, " n"], noise: Float[Tensor, "n d"]
    ) -> Float[Tensor, "n d"]:
        return self.space.noised(embedding, level, noise)

    def sample(
        self, conditioning: Float[Tensor, "n k"], latents: Float[Tensor, "n ..."], keys: Sequence[str]
    ) -> list[Generated | Failed]:
        own = torch.tensor([self.images.place_of[key] for key in keys])
        queries = torch.nn.functional.normalize(conditioning, dim=1)
        found, cosine = nearest_other(queries, self.index, own, self.block)
        return [self._copy(row, similarity) for row, similarity in zip(found.tolist(), cosine.tolist(), strict=True)]

    def _copy(self, row: int, cosine: float) -> Generated | Failed:
        if row < 0:
            return Failed("non_finite", "no other image has a finite similarity to the embedding")
        ext, content = image_field(self.images.fields(row))
        return Generated({ext: content}, {"neighbour": self.images.keys()[row], "cosine": round(cosine, 5)})

"""What the training reads over and over: every image at the side of the views, and its embedding. Made once, on disk.

Two mapped files in the folder's scratch, so that images may exceed memory, and the processes of a training share them.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Float16, Float32, Int64, UInt8
from PIL import Image
from torch import Tensor

from viewkit.pipelines.encoders.encoder import UNIT_STD, ZERO_MEAN, Encoder
from viewkit.pipelines.encoders.preprocess import Preprocess
from viewkit.pipelines.engine.batches import batches, padded
from viewkit.pipelines.engine.contract import Run
from viewkit.pipelines.engine.rejects import decode_or_reject
from viewkit.pipelines.engine.seeds import smallest
from viewkit.pipelines.engine.threads import side_by_side
from viewkit.pipelines.foreground.index import Embeddings, feature_statistics, mapped
from viewkit.pipelines.generate.own.choose import num_trained
from viewkit.shards.errors import DataError
from viewkit.shards.files import make_folder, write_atomic
from viewkit.shards.row import Reject

SCRATCH = "prepared"
PIXELS, EMBEDDINGS, DONE = "pixels.npy", "embeddings.npy", "done.json"
AT_ONCE = 32
"""Images of one pass through the encoder."""


@dataclass(frozen=True)
class Prepared:
    """pixels, embeddings: of all images, in the order of the column. train, held: places of those that are trained on,
    and of those that are held out, the smallest key hash first; images that cannot be decoded are in neither.
    mean, std: of the embeddings that are trained on. latents: of every image, and of its mirror image, where the
    network works in these.
    """

    pixels: UInt8[np.ndarray, "n s s 3"]
    embeddings: Float32[np.ndarray, "n d"]
    train: Int64[np.ndarray, " m"]
    held: Int64[np.ndarray, " k"]
    mean: Float[Tensor, " d"]
    std: Float[Tensor, " d"]
    latents: Float16[np.ndarray, "n 2 c h w"] | None = None

    @property
    def shape(self) -> tuple[int, int, int]:
        """(c, h, w) of what the network learns to make of an image."""
        if self.latents is not None:
            return self.latents.shape[2], self.latents.shape[3], self.latents.shape[4]
        return 3, self.pixels.shape[1], self.pixels.shape[2]

    def learnt(self, places: Int64[np.ndarray, " b"], mirrored: Bool[np.ndarray, " b"]) -> Float[Tensor, "b c h w"]:
        """What the network learns to make of these images, or of their mirror images: pixels -1 ... 1, or latents."""
        if self.latents is not None:
            return torch.from_numpy(self.latents[places, mirrored.astype(np.int64)]).float()
        images = to_floats(self.pixels[places])
        return torch.where(torch.from_numpy(mirrored)[:, None, None, None], images.flip(-1), images)

    @property
    def width(self) -> int:
        return self.embeddings.shape[1]


def prepare_images(run: Run, encoder: Encoder, side_px: int) -> None:
    """Write the files, unless an earlier start of this training has. Images become squares, their middle."""
    folder = run.folder / SCRATCH
    if (folder / DONE).exists():
        return
    make_folder(folder)
    images = run.dataset.column("images")
    keys = images.keys()
    crop = Preprocess(side_px, side_px, ZERO_MEAN, UNIT_STD, Image.Resampling.BICUBIC)
    pixels = mapped(folder / PIXELS, (len(keys), side_px, side_px, 3), "|u1")
    embeddings = Embeddings(len(keys), encoder.width, folder / EMBEDDINGS)

    def encode(places: Sequence[int]) -> tuple[list[int], list[np.ndarray], Tensor | None]:
        decoded = {}
        for place in places:
            image = decode_or_reject(keys[place], images.fields(place))
            if not isinstance(image, Reject):  # `generate` rejects such a row and says why
                decoded[place] = image
        if not decoded:
            return [], [], None
        small = [crop.crop(image) for image in decoded.values()]
        _, features = encoder.encode_images(padded(list(decoded.values()), AT_ONCE))
        return list(decoded), small, features[: len(decoded)]

    run.progress.start(run.stage, len(keys), "images")
    parts = list(batches(range(len(keys)), AT_ONCE))
    for part, (places, small, features) in zip(parts, side_by_side(encode, parts, run.device), strict=True):
        for i, place in enumerate(places):
            assert features is not None
            pixels[place] = small[i]
            if features[i].isfinite().all():
                embeddings.put(place, features[i])
        run.progress.advance(len(part))
    for array in (pixels, embeddings.values):
        assert isinstance(array, np.memmap)
        array.flush()
    usable = np.flatnonzero(embeddings.present)
    write_atomic(folder / DONE, json.dumps({"usable": usable.tolist()}).encode())


def open_prepared(run: Run, held_out: int, least: int) -> Prepared:
    """What `prepare_images` wrote, mapped. held_out: images to hold out, at most a tenth. `DataError` for fewer than
    `least` images that can be used."""
    folder = run.folder / SCRATCH
    keys = run.dataset.column("images").keys()
    usable = np.array(json.loads((folder / DONE).read_bytes())["usable"], np.int64)
    if len(usable) < least:
        raise DataError(f"generator: only {len(usable)} of {len(keys)} images can be used, and {least} are needed")
    place_of = {keys[place]: place for place in usable.tolist()}
    held = np.array(
        [place_of[key] for key in smallest(place_of, len(usable) - num_trained(len(usable), held_out))], np.int64
    )
    train = np.setdiff1d(usable, held)
    pixels, embeddings = (np.load(folder / name, mmap_mode="r") for name in (PIXELS, EMBEDDINGS))
    mean, std = feature_statistics(embeddings, np.isin(np.arange(len(keys)), train))
    return Prepared(pixels, embeddings, train, held, mean, std)


def to_floats(pixels: UInt8[np.ndarray, "n s s 3"]) -> Float[Tensor, "n 3 s s"]:
    """-1 ... 1."""
    return torch.from_numpy(np.ascontiguousarray(pixels)).permute(0, 3, 1, 2).float() / 127.5 - 1

"""The latents of all images and of their mirror images, made once, on disk, beside what `prepared` keeps there."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from viewkit.pipelines.engine.batches import batches
from viewkit.pipelines.engine.contract import Run
from viewkit.pipelines.foreground.index import mapped
from viewkit.pipelines.generate.own.autoencoder import encode, latent_shape
from viewkit.pipelines.generate.own.prepared import SCRATCH, Prepared, to_floats
from viewkit.pipelines.models.checkpoint import checksum
from viewkit.shards.files import write_atomic

LATENTS, DONE = "latents.npy", "latents.json"
AT_ONCE = 8
"""Images of one pass through the encoder."""
SCALED_BY = 1_000
"""Images whose latents decide the scaling factor, at most."""


def weights_of(autoencoder: Any) -> str:
    """Checksum of its weights: latents of other weights are of another space."""
    return checksum({name: tensor.cpu() for name, tensor in autoencoder.state_dict().items()}, "autoencoder")


def write_latents(run: Run, autoencoder: Any, prepared: Prepared, *, scaled: bool) -> None:
    """Write the file, in fp16, unless an earlier start of this training has, with the same autoencoder. scaled: choose
    its scaling factor so that latents have deviation 1, which a published one has chosen already."""
    folder, made_by = run.folder / SCRATCH, weights_of(autoencoder)
    if (folder / DONE).exists() and json.loads((folder / DONE).read_bytes())["autoencoder"] == made_by:
        return
    (folder / DONE).unlink(missing_ok=True)
    if scaled:
        autoencoder.register_to_config(scaling_factor=1.0)
        some = prepared.train[:SCALED_BY].tolist()
        parts = [_encoded(run, autoencoder, prepared, part) for part in batches(some, AT_ONCE)]
        autoencoder.register_to_config(scaling_factor=round(1 / float(np.concatenate(parts).std()), 6))
    count, shape = len(prepared.pixels), latent_shape(autoencoder, prepared.pixels.shape[1])
    found = mapped(folder / LATENTS, (count, 2, *shape), "<f2")
    run.progress.start(run.stage, count, "images")
    for part in batches(range(count), AT_ONCE):
        found[list(part)] = _encoded(run, autoencoder, prepared, list(part))
        run.progress.advance(len(part))
    found.flush()
    facts = {"autoencoder": made_by, "scaling_factor": autoencoder.config.scaling_factor}
    write_atomic(folder / DONE, json.dumps(facts).encode())


def with_latents(run: Run, autoencoder: Any, prepared: Prepared) -> Prepared:
    """What `write_latents` wrote, mapped; the autoencoder gets the scaling factor that it was written with."""
    folder = run.folder / SCRATCH
    facts = json.loads((folder / DONE).read_bytes())
    autoencoder.register_to_config(scaling_factor=facts["scaling_factor"])
    return replace(prepared, latents=np.load(folder / LATENTS, mmap_mode="r"))


def _encoded(run: Run, autoencoder: Any, prepared: Prepared, places: list[int]) -> np.ndarray:
    """[n 2 c h w]."""
    images = to_floats(prepared.pixels[places])
    both = torch.stack([images, images.flip(-1)], 1).flatten(0, 1).to(run.device, memory_format=torch.channels_last)
    return encode(autoencoder, both).unflatten(0, (-1, 2)).cpu().numpy()

"""Generated views: our loop over mixed noise levels in one batch against the stock Stable unCLIP pipeline.

The pipeline takes one level a call, so GenView's release calls it one image at a time; batched, it takes one batch a
level. Both are timed, from decoded images to uint8 pictures, with the sampler and the 20 steps of the published
weights.

On a CPU the tiny random pipeline of the tests runs in fp32, on all threads: a batch gains most by them (on one thread
its network is only 1.2 times as fast for a row). On a GPU, or with VIEWKIT_BENCH=full, the architecture is
the published one with random weights, in bf16 at 768 px; there the time of an image is compared with the least the
arithmetic allows. Lossy settings are compared with ours at its best without them. VIEWKIT_COMPILE=1 compiles ours.
"""

import os
import resource
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import harness
import numpy as np
import torch
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from reference.genview_pipeline import full_size_pipeline, pipeline_noise, stock_image, stock_images, tiny_pipeline

from viewkit.pipelines.encoders.clip_folders import ClipFolderEncoder
from viewkit.pipelines.encoders.encoder import DTYPES
from viewkit.pipelines.generate.generators.networks import Networks
from viewkit.pipelines.generate.generators.sampling import Guidance, Sampling, create_solver
from viewkit.pipelines.generate.generators.unclip import ENCODER, Unclip, UnclipFolder, noise_space

STEPS = 20
LEVELS = (0, 100, 200, 300, 400)
FLOPS = 92e12
"""Of one image: 40 passes of the UNet at 96 x 96 and the decoder at 768 px, counted; PNDM's 21st step adds 4."""
CEILING = 790e12
"""Operations a second of an H200 in dense bf16 matrix products, as measured by others; 989e12 is its data sheet."""


@dataclass(frozen=True)
class World:
    """What is run. side_px: of the pictures. images: in one batch; the stock pipeline gets a fifth of it at a time."""

    pipeline: Any
    networks: Networks
    folder: UnclipFolder
    encoder: ClipFolderEncoder
    device: str
    precision: str
    side_px: int
    images: list[NDArray[np.uint8]]
    compiled: bool

    def ours(self, networks: Networks | None = None, **options: Any) -> Callable[[], NDArray[np.uint8]]:
        own = {
            "guidance": Guidance(10.0),
            "steps": harness.sized(STEPS, 4),
            "render_px": self.side_px,
            "output_px": self.side_px,
        }
        space, sampling = noise_space(self.folder, self.encoder.width), Sampling(**{**own, **options})
        networks = networks or self.networks
        unclip = Unclip(networks, space, self.encoder, sampling, self.device, compiled=self.compiled)
        levels = torch.tensor(self.levels)

        def run() -> NDArray[np.uint8]:
            noise, latents = pipeline_noise(range(len(self.images)), unclip.encoder.width, unclip.latent_shape)
            conditioning = unclip.perturb(unclip.condition(self.images), levels, noise)
            return unclip.pixels(conditioning, latents)[0]

        return run

    @property
    def levels(self) -> list[int]:
        return [LEVELS[i % len(LEVELS)] for i in range(len(self.images))]

    def one_at_a_time(self) -> NDArray[np.uint8]:
        return np.stack(
            [
                stock_image(self.pipeline, image, level, generator, steps=harness.sized(STEPS, 4), side_px=self.side_px)
                for image, level, generator in zip(self.images, self.levels, self._generators(), strict=True)
            ]
        )

    def batched(self) -> NDArray[np.uint8]:
        """One call a level, with all its images."""
        pictures: dict[int, NDArray[np.uint8]] = {}
        generators = self._generators()
        for level in sorted(set(self.levels)):
            rows = [row for row, each in enumerate(self.levels) if each == level]
            chosen, own = [self.images[row] for row in rows], [generators[row] for row in rows]
            made = stock_images(self.pipeline, chosen, level, own, steps=harness.sized(STEPS, 4), side_px=self.side_px)
            pictures.update(zip(rows, made, strict=True))
        return np.stack([pictures[row] for row in range(len(self.images))])

    def _generators(self) -> list[torch.Generator]:
        return [torch.Generator().manual_seed(seed) for seed in range(len(self.images))]


def make_world(folder: Path, images: int, device: str | None = None, full: bool | None = None) -> World:
    """device: by default a GPU where there is one. full: the published architecture, by default on a GPU."""
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    full = (device == "cuda" or os.environ.get("VIEWKIT_BENCH") == "full") if full is None else full
    precision = "bf16" if device == "cuda" else "fp32"
    pipeline = full_size_pipeline() if full else tiny_pipeline()
    pipeline.save_pretrained(folder)
    kept = UnclipFolder(folder)
    encoder = ENCODER.create(folder, device, precision)
    return World(
        pipeline=pipeline if device == "cpu" else pipeline.to(device, DTYPES[precision]),
        networks=Unclip.load(kept, encoder.width, precision, "checkpoint"),
        folder=kept,
        encoder=encoder,
        device=device,
        precision=precision,
        side_px=768 if full else 64,
        images=list(np.random.default_rng(0).integers(0, 256, (images, 256, 300, 3), dtype=np.uint8)),
        compiled=os.environ.get("VIEWKIT_COMPILE") == "1",
    )


def lossy(world: World) -> dict[str, Callable[[], NDArray[np.uint8]]]:
    """Settings that change the pictures, by what changes."""
    settings, where = world.folder.settings("scheduler"), world.folder.path / "scheduler"

    def solved_by(solver: str, **options: Any) -> Callable[[], NDArray[np.uint8]]:
        return world.ours(replace(world.networks, scheduler=create_solver(settings, where, solver)), **options)

    half = Guidance(10.0, 0.25, 0.75)
    variants = {
        "DPM-Solver++, 20 steps": solved_by("dpmsolver++"),
        "DPM-Solver++, 10 steps": solved_by("dpmsolver++", steps=10),
        "UniPC, 10 steps": solved_by("unipc", steps=10),
        "guidance in the middle half": world.ours(guidance=half),
        "both: 10 steps, half guided": solved_by("dpmsolver++", steps=10, guidance=half),
        "two thirds of the side": world.ours(render_px=2 * world.side_px // 3 // 8 * 8),
    }
    if world.device == "cpu":
        variants["bf16"] = world.ours(Unclip.load(world.folder, world.encoder.width, "bf16", "checkpoint"))
    return variants


def run(rounds: int) -> tuple[list[harness.Row | harness.Fact], list[str]]:
    count = harness.sized(15 if torch.cuda.is_available() else 10, len(LEVELS))
    with tempfile.TemporaryDirectory() as name:
        world = make_world(Path(name), count)
        images, ours = len(world.images), world.ours()
        lossy_rounds = rounds if world.device == "cuda" else 1  # on a CPU they only show that the settings work
        where = f"{world.device}, {world.precision}, {world.side_px} px"
        rows: list[harness.Row | harness.Fact] = [
            harness.compare(
                f"images ({where}) / stock, one at a time",
                ours,
                world.one_at_a_time,
                rounds,
                units=images,
            ),
            harness.compare(f"images ({where}) / stock, a batch a level", ours, world.batched, rounds, units=images),
        ]
        if world.precision == "fp32":
            difference = np.abs(ours().astype(int) - world.one_at_a_time()).max()
            rows.append(harness.Fact("largest difference from the stock pipeline, grey levels", float(difference)))
        if world.device == "cuda":
            first = rows[0]
            assert isinstance(first, harness.Row)
            rows.append(harness.Fact("time of an image / least time of its arithmetic", first.ours_s * CEILING / FLOPS))
        rows += [
            harness.compare(f"lossy: {what} / ours without", variant, ours, lossy_rounds, units=images)
            for what, variant in lossy(world).items()
        ]
        return rows, [f"peak memory, GiB: {memory}" for memory in peak_memory(world, ours)]


def peak_memory(world: World, ours: Callable[[], object]) -> list[str]:
    """Of the device, of ours and of the peers; on a CPU only of the whole process."""
    if world.device == "cpu":
        return [f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} (the process, both sides)"]
    found = []
    for name, work in (("ours", ours), ("one at a time", world.one_at_a_time), ("a batch a level", world.batched)):
        torch.cuda.reset_peak_memory_stats()
        work()
        found.append(f"{torch.cuda.max_memory_allocated() / 2**30:.1f} ({name}; the networks of both sides are loaded)")
    return found


if __name__ == "__main__":
    harness.main("generate", run, on_gpu=True)

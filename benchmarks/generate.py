"""Generated views: our loop over mixed noise levels in one batch against the stock Stable unCLIP pipeline.

The pipeline takes one level a call, so GenView's release calls it one image at a time; that is the peer. Both run the
tiny random pipeline of the tests, in fp32, with the sampler and the 20 steps of the published weights.
"""

import sys
import tempfile
from pathlib import Path

import harness
import numpy as np
import torch
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from reference.genview_pipeline import stock_image, tiny_pipeline

from viewkit.pipelines.generate.encoders import UnclipEncoder
from viewkit.pipelines.generate.generators.unclip import Unclip
from viewkit.pipelines.generate.unclip_folder import UnclipFolder

IMAGES = 8
STEPS = 20
LEVELS = [100 * (i % 5) for i in range(IMAGES)]


def run(rounds: int) -> tuple[list[harness.Row | harness.Fact], list[str]]:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    pipeline = tiny_pipeline()
    with tempfile.TemporaryDirectory() as name:
        pipeline.save_pretrained(name)
        folder = UnclipFolder(Path(name))
        unclip = Unclip(folder, UnclipEncoder(folder, device, "fp32"), device, steps=STEPS, output_px=64)
    pipeline.to(device)
    images = list(np.random.default_rng(0).integers(0, 256, (IMAGES, 32, 32, 3), dtype=np.uint8))

    def ours() -> NDArray[np.uint8]:
        noise, latents = zip(*(drawn(seed, unclip) for seed in range(IMAGES)), strict=True)
        conditioning = unclip.perturb(unclip.condition(images), torch.tensor(LEVELS), torch.cat(noise))
        return unclip.pixels(conditioning, torch.cat(latents))[0]

    def one_at_a_time() -> NDArray[np.uint8]:
        return np.stack(
            [
                stock_image(pipeline, image, level, torch.Generator().manual_seed(seed), steps=STEPS)
                for seed, (image, level) in enumerate(zip(images, LEVELS, strict=True))
            ]
        )

    difference = np.abs(ours().astype(int) - one_at_a_time().astype(int)).max()
    return [
        harness.compare(
            f"{IMAGES} images of mixed levels on {device}", ours, one_at_a_time, None, rounds, units=IMAGES
        ),
        harness.Fact("largest difference, grey levels", float(difference), 1),
    ], []


def drawn(seed: int, unclip: Unclip) -> tuple[torch.Tensor, torch.Tensor]:
    """The noise the stock pipeline would draw for this seed: of the embedding, then latents."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn((1, unclip.encoder.width), generator=generator)
    return noise, torch.randn((1, *unclip.latent_shape), generator=generator)


if __name__ == "__main__":
    harness.main(__doc__.partition("\n")[0], run)

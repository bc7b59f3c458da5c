"""The generators by name: one line each."""

from collections.abc import Callable
from pathlib import Path

from viewkit.pipelines.generate.config import GenerateConfig
from viewkit.pipelines.generate.encoders import Encoder, UnclipEncoder, needed
from viewkit.pipelines.generate.foreground import INDEX, Foreground
from viewkit.pipelines.generate.generators.face import Generator
from viewkit.pipelines.generate.generators.retrieval import Retrieval
from viewkit.pipelines.generate.generators.unclip import Unclip
from viewkit.pipelines.generate.search import open_index
from viewkit.pipelines.generate.unclip_folder import UnclipFolder
from viewkit.pipelines.stage import Run

Maker = Callable[[GenerateConfig, Run, Encoder, Foreground, Path | None], Generator]


def make_retrieval(
    config: GenerateConfig, run: Run, encoder: Encoder, foreground: Foreground, weights: Path | None
) -> Generator:
    index = open_index(run.dataset.artifact("foreground").path(INDEX))
    return Retrieval(encoder, index, foreground.mean, foreground.std, run.dataset.column("images"))


def make_unclip(
    config: GenerateConfig, run: Run, encoder: Encoder, foreground: Foreground, weights: Path | None
) -> Generator:
    folder = UnclipFolder(needed(weights))
    shared = encoder if isinstance(encoder, UnclipEncoder) else UnclipEncoder(folder, run.device, config.precision)
    return Unclip(
        folder,
        shared,
        run.device,
        precision=config.precision,
        solver=config.solver,
        steps=config.steps,
        guidance=config.guidance,
        render_px=config.render_px,
        output_px=config.output_px,
    )


GENERATORS: dict[str, Maker] = {"retrieval": make_retrieval, "unclip": make_unclip}

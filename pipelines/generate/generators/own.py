"""Generator `own`: the one that `viewkit generator` has trained on the dataset's images.

unCLIP's loop: noise on the estimator's embedding, solver, guidance and checks are the same. Two things differ: the
network was trained on standardised embeddings, so they stay so, and up to 64 px nothing has to be decoded.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from jaxtyping import Float, Int
from torch import Tensor

from viewkit.pipelines.encoders.encoder import Encoder
from viewkit.pipelines.encoders.open import open_encoder
from viewkit.pipelines.generate.config import GenerateConfig
from viewkit.pipelines.generate.generators.interface import Setup
from viewkit.pipelines.generate.generators.networks import Networks, load_autoencoder, load_unet
from viewkit.pipelines.generate.generators.sampling import Sampling, create_solver
from viewkit.pipelines.generate.generators.unclip import Unclip
from viewkit.pipelines.generate.noising import NoiseSpace, squared_cosine, with_level_code
from viewkit.pipelines.generate.own.config import CONDITION
from viewkit.pipelines.generate.own.facts import GeneratorFacts
from viewkit.pipelines.generate.own.network import (
    AUTOENCODER,
    OwnFolder,
    OwnLatentFolder,
    Pixels,
    create_sampler,
    open_own_folder,
)
from viewkit.pipelines.weights.folder import PipelineFolder
from viewkit.shards.errors import ConfigError, RefusedError


class Own(Unclip):
    """Conditioned on the estimator, whatever encoder the foreground is fitted with."""

    name = "own"
    folder_class: ClassVar[type[PipelineFolder]] = OwnFolder

    @classmethod
    def create(cls, setup: Setup) -> "Own":
        config, run = setup.config, setup.run
        artifact = run.dataset.artifact("generator")
        facts = GeneratorFacts.read(artifact)
        folder = open_own_folder(artifact.whole_folder())
        for file in folder.files:
            artifact.path(file.relative_to(artifact.folder).as_posix())  # not a bit of it has changed
        encoder = setup.encoder
        if config.encoder_name != CONDITION:
            encoder = open_encoder(CONDITION, run.dataset, device=run.device)
        if dict(facts.encoder) != dict(encoder.fingerprint()):
            raise RefusedError(
                f"{artifact.folder}: trained with another estimator than the dataset has now; delete the folder and "
                "rerun 'viewkit generator'"
            )
        if config.render_px not in (None, facts.side_px):
            raise ConfigError(
                f"render_px is {config.render_px} and this generator makes views of {facts.side_px} px; leave it out"
            )
        found = cls.assemble(setup, folder, encoder)
        assert isinstance(found, Own)
        return found

    @classmethod
    def inputs(cls, config: GenerateConfig, weights: Path | None) -> Mapping[str, str]:
        """Nothing outside of the dataset."""
        return {}

    @classmethod
    def load(cls, folder: PipelineFolder, width: int, precision: str, solver: str) -> Networks:
        from diffusers import AutoencoderKL

        scheduler = create_solver(folder.settings("scheduler"), folder.path / "scheduler", solver)
        latent = isinstance(folder, OwnLatentFolder)
        autoencoder = load_autoencoder(AutoencoderKL, folder, AUTOENCODER, precision) if latent else Pixels()
        return Networks(load_unet(folder, precision), autoencoder, scheduler)

    @classmethod
    def of_networks(
        cls,
        unet: Any,
        autoencoder: Any | None,
        mean: Float[Tensor, " d"],
        std: Float[Tensor, " d"],
        encoder: Encoder,
        sampling: Sampling,
        device: str,
    ) -> "Own":
        """From networks in memory, as a training looks at them. autoencoder: None for a network in pixels."""
        space = NoiseSpace(mean, std, squared_cosine())
        networks = Networks(unet, Pixels() if autoencoder is None else autoencoder, create_sampler())
        return cls(networks, space, encoder, sampling, device)

    @property
    def multiple(self) -> int:
        """The stages of the network halve the side each time but the last."""
        return self.factor * int(2 ** (len(self.unet.config.block_out_channels) - 1))

    def perturb(
        self, embedding: Float[Tensor, "n d"], level: Int[Tensor, " n"], noise: Float[Tensor, "n d"]
    ) -> Float[Tensor, "n k"]:
        return with_level_code(self.space.noised(embedding, level, noise), level)

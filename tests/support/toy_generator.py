"""A generator with weights and an image encoder of its own; tests add its line to the table."""

from collections.abc import Mapping
from typing import ClassVar

from safetensors.torch import load_file

from viewkit.pipelines.encoders.clip_folders import ClipFolder
from viewkit.pipelines.generate.generators.interface import Generated, Generator
from viewkit.pipelines.generate.noising import NoiseSpace, squared_cosine
from viewkit.pipelines.weights.folder import PipelineFolder, require_folder
from viewkit.shards.codecs import encode_png


class ToyFolder(PipelineFolder):
    """`colour/model.safetensors` maps an embedding to a colour; `image_encoder` gives the embedding."""

    title = "toy"
    weight_files: ClassVar[Mapping[str, str]] = {"colour": "model", "image_encoder": "model"}


ENCODER = ClipFolder("toy", ToyFolder, preprocessor=None)


class Toy(Generator):
    """Noise in the colour that the noised embedding is mapped to."""

    name = "toy"
    latent_shape = (8, 8, 3)

    def __init__(self, encoder, space, colour):
        self.encoder, self.space, self.colour = encoder, space, colour

    @classmethod
    def create(cls, setup):
        folder = ToyFolder(setup.weights)
        space = NoiseSpace(setup.foreground.mean, setup.foreground.std, squared_cosine())
        return cls(setup.encoder, space, load_file(folder.weights("colour")[0])["weight"])

    @classmethod
    def inputs(cls, config, weights):
        return ToyFolder(require_folder(weights, "generator 'toy'")).digests()

    def perturb(self, embedding, level, noise):
        return self.space.noised(embedding, level, noise)

    def sample(self, conditioning, latents, keys):
        colours = (conditioning @ self.colour).sigmoid()[:, None, None]  # n 1 1 3
        pixels = (255 * (0.7 * colours + 0.3 * latents.sigmoid())).byte().numpy()
        return [Generated({"png": encode_png(image)}, {"red": float(image[..., 0].mean())}) for image in pixels]

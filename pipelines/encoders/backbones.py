"""Encoders trained by viewkit itself: the dataset's estimator, and the encoder of a run."""

from jaxtyping import Float
from torch import Tensor

from viewkit.pipelines.encoders.encoder import Encoder, EncoderRequest
from viewkit.pipelines.encoders.names import Precision
from viewkit.pipelines.encoders.preprocess import Preprocess
from viewkit.pipelines.models.backbone import Backbone
from viewkit.pipelines.models.estimator import Estimator
from viewkit.pipelines.models.saved import load_encoder
from viewkit.pipelines.views.policy import Colour, colour


class BackboneEncoder(Encoder):
    """Patch tokens and features of a `Backbone`. Needs no downloaded weights."""

    model: Backbone

    def __init__(
        self,
        backbone: Backbone,
        mean: Colour,
        std: Colour,
        *,
        name: str,
        device: str = "cpu",
        precision: Precision = "fp32",
    ) -> None:
        preprocess = Preprocess(backbone.side_px, backbone.side_px, mean, std)
        super().__init__(backbone, preprocess, name=name, device=device, precision=precision)

    def forward(self, x: Float[Tensor, "n 3 s s"]) -> tuple[Float[Tensor, "n t k"], Float[Tensor, "n d"]]:
        return self.model.tokens_and_features(x)


def open_estimator(asked: EncoderRequest) -> Encoder:
    """The backbone of the dataset's estimator."""
    estimator = Estimator.load(asked.dataset.artifact(asked.name))
    mean, std = colour(estimator.mean), colour(estimator.std)
    backbone = estimator.network.backbone
    return BackboneEncoder(backbone, mean, std, name=asked.name, device=asked.device, precision=asked.precision)


def open_run(asked: EncoderRequest) -> Encoder:
    """The backbone that a run of `viewkit pretrain` has trained."""
    backbone, facts = load_encoder(asked.dataset.artifact(asked.name))
    return BackboneEncoder(
        backbone, facts.mean, facts.std, name=asked.name, device=asked.device, precision=asked.precision
    )

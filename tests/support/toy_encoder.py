"""A frozen encoder from outside: mean colours of patches; tests add its line to the table."""

from torch import Tensor, nn
from torch.nn.functional import avg_pool2d

from viewkit.pipelines.encoders.encoder import Encoder, EncoderRequest
from viewkit.pipelines.encoders.preprocess import Preprocess


class MeanColours(Encoder):
    """Tokens are the mean colours of patches, features the mean colour of the view."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        means = avg_pool2d(x, 4)
        return means.flatten(2).mT, means.mean(dim=(2, 3))


def open_toy(asked: EncoderRequest) -> MeanColours:
    side_px = int(asked.name.removeprefix("toy:"))
    preprocess = Preprocess(side_px, side_px, (0.5, 0.5, 0.5), (0.25, 0.25, 0.25))
    return MeanColours(nn.Identity(), preprocess, name=asked.name, device=asked.device, precision=asked.precision)

import numpy as np
import pytest
from torchvision.transforms.autoaugment import RandAugment

from viewkit.pipelines.views.randaugment import OPERATIONS, strengths

SIDE_PX = 224
THEIRS = {"saturation": "Color"}


@pytest.mark.parametrize("name", OPERATIONS)
def test_strengths_are_torchvisions_at_every_magnitude(name):
    key = THEIRS.get(name, "".join(word.capitalize() for word in name.split("_")).replace("contrast", "Contrast"))
    magnitudes, signed = RandAugment()._augmentation_space(31, (SIDE_PX, SIDE_PX))[key]
    places = np.arange(31.0)
    for negative in (False, True) if signed else (False,):
        ours = strengths(np.full(31, OPERATIONS.index(name)), places, np.full(31, negative))
        theirs = magnitudes.double().numpy() * (-1 if negative else 1) if magnitudes.ndim else np.zeros(31)
        if name.startswith("translate"):
            theirs = theirs / SIDE_PX
        elif name in ("brightness", "saturation", "contrast", "sharpness"):
            theirs = 1 + theirs
        elif name == "solarize":
            theirs = theirs / 255
        assert np.allclose(ours, theirs, atol=1e-6)

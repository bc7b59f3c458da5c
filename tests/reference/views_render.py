"""A slow reference renderer: torchvision's functions on float, one view at a time, in the recipe's order."""

import torch
import torchvision.transforms.v2.functional as F
from torch import Tensor
from torchvision.transforms import InterpolationMode

from viewkit.pipelines.views.recipe import ORDERS, column


def render_one(image: Tensor, recipe: list[float], box: list[int], side_px: int, interpolation: str) -> Tensor:
    """One view [3 side side] in 0-1, before the normalisation. image: uint8 or float [h w 3]."""
    size = [side_px, side_px]
    x = F.resized_crop(image.permute(2, 0, 1), *box, size, InterpolationMode(interpolation), antialias=True)
    x = x.float() / 255 if x.dtype == torch.uint8 else x.clamp(0, 1)
    if recipe[column("flip")]:
        x = F.horizontal_flip(x)
    if recipe[column("grey")] == 2:
        x = F.rgb_to_grayscale(x, 3)
    functions = (F.adjust_brightness, F.adjust_contrast, F.adjust_saturation, F.adjust_hue)
    for operation in ORDERS[int(recipe[column("order")])]:
        factor = recipe[column("brightness") + operation]
        if factor != (0.0 if operation == 3 else 1.0):
            x = functions[operation](x, factor)
    if recipe[column("grey")] == 1:
        x = F.rgb_to_grayscale(x, 3)
    if recipe[column("sigma")] > 0:
        sigma = recipe[column("sigma")]
        x = F.gaussian_blur(x, [23, 23], [sigma, sigma])
    if recipe[column("solarize")] <= 1:
        x = torch.where(x >= recipe[column("solarize")], 1 - x, x)
    return x

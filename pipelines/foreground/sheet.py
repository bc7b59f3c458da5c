"""Contact sheet of foreground masks under both signs: nobody can check a vector, anybody can check this."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, UInt8
from PIL import Image, ImageDraw

TILE_PX = 112
HEADER_PX = 16
SETS = 2
"""Images side by side."""
COLUMNS = ("image", "--sign +", "--sign -")


def draw_masks(
    crops: Sequence[UInt8[np.ndarray, "side side 3"]],
    plus: Bool[np.ndarray, "n gh gw"],
    minus: Bool[np.ndarray, "n gh gw"],
) -> UInt8[np.ndarray, "h w 3"]:
    """What the encoder sees of n images, and what would be foreground if the component's sign were + or -.

    Background is darkened to a quarter.
    """
    rows = -(-len(crops) // SETS)
    sheet = Image.new("RGB", (SETS * len(COLUMNS) * TILE_PX, HEADER_PX + rows * TILE_PX))
    draw = ImageDraw.Draw(sheet)
    for column in range(SETS * len(COLUMNS)):
        draw.text((column * TILE_PX + 4, 2), COLUMNS[column % len(COLUMNS)], fill=(255, 255, 255))
    for i, (crop, one, other) in enumerate(zip(crops, plus, minus, strict=True)):
        top, left = HEADER_PX + (i // SETS) * TILE_PX, (i % SETS) * len(COLUMNS) * TILE_PX
        image = Image.fromarray(crop).resize((TILE_PX, TILE_PX), Image.Resampling.BICUBIC)
        dark = image.point(lambda value: value // 4)
        sheet.paste(image, (left, top))
        for column, mask in ((1, one), (2, other)):
            cut = Image.fromarray(mask.astype(np.uint8) * 255).resize((TILE_PX, TILE_PX), Image.Resampling.NEAREST)
            sheet.paste(Image.composite(image, dark, cut), (left + column * TILE_PX, top))
    return np.asarray(sheet)

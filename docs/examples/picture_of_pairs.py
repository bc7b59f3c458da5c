"""Draw three pairs of views of a photograph that ships with scikit-image: an apart, a near and a middling one.

python docs/examples/picture_of_pairs.py OUT.png

Each line is the photograph with both crops, then the two views as an encoder is given them. Of `PAIRS` pairs that the
policy `simclr` samples, those are drawn whose crops overlap least, most, and by 0.3.
"""

import sys
from pathlib import Path

import numpy as np
import skimage.data
import torch
from PIL import Image, ImageDraw

from viewkit.pipelines.engine.seeds import row_ids
from viewkit.pipelines.views.boxes import overlap
from viewkit.pipelines.views.policies import load_policy
from viewkit.pipelines.views.recipe import column
from viewkit.pipelines.views.render.render import render
from viewkit.pipelines.views.sample import sample_recipes

PAIRS, TILE_PX, GAP_PX, COLOURS = 200, 104, 6, 128
OUTLINES = ("#00e676", "#2979ff")


def sample_pairs(image):
    """Recipes [PAIRS 2 p] of random pairs, and the overlap (intersection over union) of the crops of each."""
    recipes = sample_recipes(
        load_policy("simclr"), row_ids(["pictures"]), np.array([image.shape[:2]]), seed=1, stage="pictures", round=0,
        num_views=2 * PAIRS, pipelines="alternate",
    ).reshape(PAIRS, 2, -1)  # fmt: skip
    boxes = recipes[..., [column(name) for name in ("top", "left", "height", "width")]]
    return recipes, overlap(boxes[:, 0], boxes[:, 1])


def choose(overlaps):
    """The pairs that are drawn: apart, near, middling."""
    return [int(overlaps.argmin()), int(overlaps.argmax()), int(np.abs(overlaps - 0.3).argmin())]


def draw(image, pair):
    """One line: the photograph with both crops, and the views."""
    views = render(
        [torch.from_numpy(image)], pair, np.zeros(2, dtype=int), side_px=TILE_PX, mean=(0.0, 0.0, 0.0),
        std=(1.0, 1.0, 1.0), interpolation="bilinear",
    )  # fmt: skip
    tiles = (views * 255 + 0.5).clamp(0, 255).byte().permute(0, 2, 3, 1).numpy()
    height, width = image.shape[:2]
    whole = Image.fromarray(image).resize((TILE_PX * width // height, TILE_PX))
    pen = ImageDraw.Draw(whole)
    line = Image.new("RGB", (whole.width + 2 * (TILE_PX + GAP_PX), TILE_PX), "white")
    for place, recipe in enumerate(pair):
        top, left, box_height, box_width = (recipe[column(name)] for name in ("top", "left", "height", "width"))
        x, y = left * whole.width, top * whole.height
        corner = (x + box_width * whole.width - 1, y + box_height * whole.height - 1)
        pen.rectangle(((x, y), corner), outline=OUTLINES[place], width=3)
        line.paste(Image.fromarray(tiles[place]), (whole.width + GAP_PX + place * (TILE_PX + GAP_PX), 0))
    line.paste(whole, (0, 0))
    return line


def main(out):
    image = skimage.data.astronaut()
    recipes, overlaps = sample_pairs(image)
    lines = [draw(image, recipes[place]) for place in choose(overlaps)]
    sheet = Image.new("RGB", (lines[0].width, len(lines) * (TILE_PX + GAP_PX) - GAP_PX), "white")
    for place, line in enumerate(lines):
        sheet.paste(line, (0, place * (TILE_PX + GAP_PX)))
    sheet.quantize(COLOURS).save(Path(out), optimize=True)
    return overlaps[choose(overlaps)]


if __name__ == "__main__":
    print("overlap of the crops:", *(f"{share:.2f}" for share in main(sys.argv[1])))

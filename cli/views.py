"""`viewkit views`: look at what an augmentation policy does to the images of a dataset."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from viewkit.cli.console import say
from viewkit.shards.errors import ConfigError


def views(
    dataset: Annotated[str, typer.Argument(help="folder of the dataset", metavar="DATASET")],
    out: Annotated[Path, typer.Argument(help="PNG file to write", metavar="OUT.png")],
    policy: Annotated[str, typer.Option(help="a policy's name, or a TOML file")] = "moco_v3",
    images: Annotated[int, typer.Option(help="images to show, those with the smallest key hashes")] = 8,
    num_views: Annotated[int, typer.Option("--num-views", help="views of each image")] = 8,
    tile_px: Annotated[int, typer.Option("--tile-px", help="side of the pictures, px")] = 128,
    seed: Annotated[int, typer.Option(help="seed of everything that is sampled")] = 0,
    joint_area: Annotated[float | None, typer.Option(help="JointCrop: beta, as in pretrain")] = None,
    joint_blur: Annotated[float | None, typer.Option(help="JointBlur: beta")] = None,
    joint_brightness: Annotated[float | None, typer.Option(help="JointColor-b: beta")] = None,
    joint_contrast: Annotated[float | None, typer.Option(help="JointColor-c: beta")] = None,
    joint_mix: Annotated[
        Literal["one", "all"] | None, typer.Option(help="several joint distributions: one a pair, or all")
    ] = None,
    centre_suppression: Annotated[float | None, typer.Option(help="ContrastiveCrop: a of Beta(a, a)")] = None,
    crop: Annotated[
        Literal["exact", "torchvision"] | None, typer.Option(help="how areas and aspect ratios are sampled")
    ] = None,
) -> None:
    """Draw a contact sheet of a policy: every line is an image and its views."""
    for name, value, most in (("images", images, 1000), ("num-views", num_views, 100), ("tile-px", tile_px, 1024)):
        if not 1 <= value <= most:
            raise ConfigError(f"--{name} is {value}; it must lie in 1 ... {most}")
    if out.suffix.lower() != ".png":
        raise ConfigError(f"{out}: the sheet is a PNG file; give it a name that ends in .png")
    from viewkit.pipelines.engine.seeds import smallest
    from viewkit.pipelines.views.options import SamplingOptions
    from viewkit.pipelines.views.policies import load_policy
    from viewkit.pipelines.views.sheet import contact_sheet
    from viewkit.shards.artifact import refuse_inside
    from viewkit.shards.codecs import decode_image, encode_png
    from viewkit.shards.dataset import Dataset
    from viewkit.shards.files import write_atomic

    options = SamplingOptions(
        joint_area=joint_area,
        joint_blur=joint_blur,
        joint_brightness=joint_brightness,
        joint_contrast=joint_contrast,
        joint_mix=joint_mix,
        centre_suppression=centre_suppression,
        crop=crop,
    )
    options.check_sampling()
    chosen = options.changed(load_policy(policy))
    column = Dataset(dataset).column("images")
    keys = smallest(column.keys(), images)
    pixels = [decode_image(column.fields(column.place_of[key])) for key in keys]
    sheet = contact_sheet(pixels, keys, chosen, num_views=num_views, tile_px=tile_px, seed=seed)
    refuse_inside(out, "views")
    write_atomic(out, encode_png(sheet))
    say(f"views: {len(keys)} images, {num_views} views each by policy '{chosen.name}': {out}")

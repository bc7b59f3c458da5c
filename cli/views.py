"""`viewkit views`: look at what an augmentation policy does to the images of a dataset."""

from pathlib import Path
from typing import Annotated

import typer


def views(
    dataset: Annotated[str, typer.Argument(help="folder of the dataset", metavar="DATASET")],
    out: Annotated[Path, typer.Argument(help="PNG file to write", metavar="OUT.png")],
    policy: Annotated[str, typer.Option(help="a policy's name, or a TOML file")] = "moco_v3",
) -> None:
    """Draw a contact sheet: a row of views for each of a few images."""

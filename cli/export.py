"""`viewkit export`: the backbone of a run for other programs."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from viewkit.cli.console import print_json, say


def export(
    run: Annotated[Path, typer.Argument(help="folder of the run, DATASET/runs/NAME", metavar="RUN")],
    to: Annotated[
        Path,
        typer.Option("--to", help="file to write, NAME.safetensors or .pth; its facts go to NAME.json"),
    ],
    names: Annotated[
        Literal["timm", "torchvision", "detectron2"],
        typer.Option("--names", help="names of the weights: timm's, torchvision's, or detectron2's in a plain .pth"),
    ] = "timm",
    as_json: Annotated[bool, typer.Option("--json", help="Print the facts as one JSON object.")] = False,
) -> None:
    """Write the backbone of a finished run as one file, with what its inputs must look like."""
    from viewkit.pipelines.export.export import export_encoder

    facts = export_encoder(run, to, names)
    if as_json:
        print_json(facts)
        return
    arguments = "".join(f", {name}={value!r}" for name, value in facts["timm_kwargs"].items())
    model = facts["torchvision_model"]
    call = (
        f"torchvision.models.{model}()"
        if model
        else f"timm.create_model({facts['timm_model']!r}, num_classes=0{arguments})"
    )
    stem = "" if facts["stem"] is None else f", its stem replaced as {to.with_suffix('.json').name} says"
    if "detectron2" in facts:
        call = f"Detectron2 as MODEL.WEIGHTS '{to}?matching_heuristics=True', with the options in {to.stem}.json"
    say(f"export: {facts['arch']}, {facts['num_features']} features, {facts['side_px']} px: {to}")
    say(f"  fits {call}{stem}; mean {facts['mean']}, std {facts['std']}")

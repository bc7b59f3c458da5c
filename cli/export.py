"""`viewkit export`: a run's encoder, or a dataset's pairs, for other programs."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from viewkit.cli.console import print_json, say
from viewkit.shards.errors import ConfigError
from viewkit.shards.identity import COLUMN
from viewkit.shards.stores.url import is_url

ENCODER, PAIRS = "The encoder of a run", "The pairs of a dataset"


def export(
    source: Annotated[
        Path, typer.Argument(help="folder of a run, DATASET/runs/NAME, or of a dataset", metavar="SOURCE")
    ],
    to: Annotated[
        Path,
        typer.Option(
            "--to",
            help="of a run: NAME.safetensors or .pth, its facts go to NAME.json; of a dataset: .csv, .parquet, .jsonl "
            "or a folder",
        ),
    ],
    names: Annotated[
        Literal["timm", "torchvision", "detectron2"] | None,
        typer.Option(
            "--names",
            help="names of the weights: timm's (unless given), torchvision's, or detectron2's in a plain .pth",
            rich_help_panel=ENCODER,
        ),
    ] = None,
    format: Annotated[
        Literal["table", "embedding-atlas", "fiftyone", "huggingface", "webshart"] | None,
        typer.Option(
            "--format",
            help="a table with a row per pair (unless given), or the files of another tool; see docs/export.md",
            rich_help_panel=PAIRS,
        ),
    ] = None,
    pairs: Annotated[str | None, typer.Option("--pairs", help="column of pairs [pairs]", rich_help_panel=PAIRS)] = None,
    quality: Annotated[
        str | None,
        typer.Option("--quality", help="column of their quality [quality, if it rates them]", rich_help_panel=PAIRS),
    ] = None,
    genview: Annotated[
        str | None,
        typer.Option("--genview", help="column of generated views [the pairs', or genview]", rich_help_panel=PAIRS),
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", help="images at most [all]", rich_help_panel=PAIRS)] = None,
    x: Annotated[
        str | None,
        typer.Option("--x", help="embedding-atlas: column, or pca1 [semantic_consistency]", rich_help_panel=PAIRS),
    ] = None,
    y: Annotated[
        str | None,
        typer.Option("--y", help="embedding-atlas: column, or pca2 [alignment_level]", rich_help_panel=PAIRS),
    ] = None,
    side_px: Annotated[
        int | None,
        typer.Option("--side-px", help="embedding-atlas: side of a view's picture [64]", rich_help_panel=PAIRS),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the facts as one JSON object.")] = False,
) -> None:
    """Write the encoder of a finished run as one file, or the pairs of a dataset for other tools."""
    options = {"pairs": pairs, "quality": quality, "genview": genview, "limit": limit, "x": x, "y": y}
    given = {name: value for name, value in {**options, "side_px": side_px}.items() if value is not None}
    if is_url(source) and source.parent.name != "runs":
        from viewkit.shards.dataset import Dataset

        source = Dataset(source).path
    if (source / "images" / COLUMN).is_file():
        if names is not None:
            raise ConfigError(
                f"export: --names is for runs, and {source} is a dataset; give DATASET/runs/NAME, or leave it out"
            )
        _export_pairs(source, to, format, given, as_json)
        return
    strangers = [*(["format"] if format else []), *given]
    if strangers:
        raise ConfigError(
            f"export: --{strangers[0].replace('_', '-')} is for datasets, and {source} is none; give the folder of one"
        )
    _export_encoder(source, to, names or "timm", as_json)


def _export_pairs(source: Path, to: Path, format: str | None, options: dict[str, Any], as_json: bool) -> None:
    from viewkit.pipelines.export.formats import export_pairs

    facts = export_pairs(source, to, format, **options)
    if as_json:
        print_json(facts)
        return
    with_columns = [str(facts[name]) for name in ("pairs", "quality", "genview") if facts.get(name)]
    what = {"webshart": "files", "huggingface": "images"}.get(facts["format"], "pairs")
    say(f"export: {facts['rows']} {what}{' of ' + ', '.join(with_columns) if with_columns else ''}: {to}")
    say(f"  {facts['open']}")


def _export_encoder(run: Path, to: Path, names: str, as_json: bool) -> None:
    from viewkit.pipelines.export.export import export_encoder
    from viewkit.shards.dataset import run_folder

    facts = export_encoder(run_folder(run), to, names)
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

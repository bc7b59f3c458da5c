"""`viewkit init`: an experiment's file for images of one's own, every choice in it with its reason."""

import math
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from viewkit.cli.console import say
from viewkit.pipelines.engine.execution import Devices, Execution
from viewkit.shards.errors import ConfigError, DataError, RefusedError
from viewkit.shards.stores.url import refuse_url

if TYPE_CHECKING:
    from viewkit.pipelines.experiments.advice import Machine
    from viewkit.pipelines.experiments.look import Images


def init(
    source: Annotated[
        str, typer.Argument(help="the images: a folder, tars, zip or parquet files, or demo:train", metavar="SOURCE")
    ],
    out: Annotated[Path, typer.Argument(help="TOML file to write", metavar="[FILE.toml]")] = Path("experiment.toml"),
    test: Annotated[
        str | None, typer.Option("--test", help="labelled test images: the file then measures accuracies on them")
    ] = None,
    device: Annotated[
        str, typer.Option("--device", help="where models are to run: auto, cpu, cuda, or a list such as cuda:0,cuda:1")
    ] = "auto",
) -> None:
    """Look at images and write an experiment for them, with the reason of every choice; overwrites nothing."""
    if out.suffix != ".toml":
        raise ConfigError(f"viewkit init: FILE is {out}; give it a name that ends in .toml")
    if out.exists():
        raise RefusedError(f"viewkit init: {out} is there already; choose another name, or delete it")
    from viewkit.pipelines.experiments.look import look_at
    from viewkit.pipelines.pack.keys import display
    from viewkit.shards.files import write_first

    machine = find_machine(device)
    images = look_at(source)
    if images.usable < 8:
        raise DataError(
            f"viewkit init: '{display(source)}' has {images.count} images, of which about {images.usable} can be used; "
            "8 are the least for a rehearsal, and hundreds for a training"
        )
    tested = None if test is None else look_at(test)
    for place, seen in ((source, images), (test, tested)):
        if tested is not None and seen is not None and not seen.classes:
            raise DataError(
                f"viewkit init: --test measures accuracies, and '{display(str(place))}' has no labels (a folder a "
                "class, or KEY.cls in tars); leave --test out, or give labelled images"
            )
    refuse_url(out, "viewkit init: the file")
    text = experiment_text(source, out, test, images, machine)
    if not write_first(out, text.encode()):
        raise RefusedError(f"viewkit init: {out} is there already; choose another name, or delete it")
    say(f"{out}: {found_in_words(images)}; for {machine_in_words(machine)}")
    if images.splits:
        say(f"note: {', '.join(images.splits)} are parts of a dataset; give one of them as SOURCE to train on it alone")
    for line in next_steps(source, out, test, images):
        say(f"  {line}")


def find_machine(device: str) -> "Machine":
    """The first device that the stages would run on. `ConfigError` for one that is not there."""
    from viewkit.pipelines.experiments.advice import Machine

    first = Devices(device=device).devices()[0]
    if first == "cpu":
        return Machine("cpu")
    import torch

    return Machine(first, torch.cuda.get_device_properties(first).total_memory / 1e9)


def experiment_text(source: str, out: Path, test: str | None, images: "Images", machine: "Machine") -> str:
    """The whole file."""
    from viewkit.pipelines.experiments.advice import render_toml, tables_for
    from viewkit.pipelines.pack.keys import display

    head = (
        f"Made by `viewkit init` for {found_in_words(images)};",
        f"for {machine_in_words(machine)}. Every option stands below its reason; all others have their defaults.",
        "",
        *(display(line) for line in next_steps(source, out, test, images)),
        "",
        "Editors complete and check this file by a schema: run `viewkit schema > experiment.schema.json` in this",
        "folder and write `#:schema ./experiment.schema.json` into the first line.",
    )
    data = f"{images.count} images, as in {display(source)}"
    return render_toml("VS-2FI's pairs beside random ones, on images of one's own", data, (), head,
                       tables_for(images, machine, tested=test is not None))  # fmt: skip


def found_in_words(images: "Images") -> str:
    low, median, high = images.sides
    classes = f"{images.classes} classes" if images.classes else "no labels"
    sides = f"{low} to {high} px, median {median}" if low != high else f"{median} px"
    unusable = f", {images.unusable} of {images.looked_at} cannot be used" if images.unusable else ""
    return f"{images.count:,} images, shorter sides {sides}, {classes}{unusable}"


def machine_in_words(machine: "Machine") -> str:
    return f"{machine.device} with {machine.memory_gb:.0f} GB" if machine.is_gpu else "a CPU"


def next_steps(source: str, out: Path, test: str | None, images: "Images") -> list[str]:
    """The commands that come next, to paste; they allow half as many rejects again as there were in the sample."""
    run = f"viewkit run {shlex.quote(str(out))} {shlex.quote(source)} dataset"
    whole = run + (f" --test {shlex.quote(test)}" if test is not None else "")
    share = images.unusable / images.looked_at
    if share * 1.5 > Execution.max_rejects:
        whole += f" --max-rejects {min(1, math.ceil(150 * share) / 100):g}"
    return [
        f"{run} --rehearse  # the chain in miniature, first",
        f"{whole} --dry-run  # how long it may take",
        whole,
    ]

"""A stage's folder: whose it is, and what a killed writer left in it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from viewkit.pipelines.engine.contract import Crew, Progress, Run, Stage
from viewkit.pipelines.engine.renderer import renderer_name
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import DataError
from viewkit.shards.files import PART, explained, sync_folder
from viewkit.shards.identity import (
    Identity,
    read_identity,
    refuse_other,
    rewrite_identity,
    software_changes,
    write_identity,
)
from viewkit.shards.removal import OF_A_SHARD, OWN_PART


def identity_of(stage: Stage[Any], config: Any, inputs: Mapping[str, str], plan: Mapping[str, int]) -> Identity:
    return Identity(stage.name, stage.version, stage.settings(config), inputs, plan)


def run_of(
    stage: Stage[Any],
    config: Any,
    dataset: Dataset,
    device: str,
    progress: Progress,
    crew: Crew | None = None,
    threads: int | None = None,
) -> Run:
    """What the stage is given."""
    folder, seed, remade = dataset.path / stage.writes, getattr(config, "seed", 0), getattr(stage, "remade", ())
    return Run(dataset, folder, stage.name, seed, device, progress, remade, crew, threads)


def claim(
    stage: Stage[Any], dataset: Dataset, path: Path, identity: Identity, notes: Mapping[str, str] | None = None
) -> Identity | None:
    """Write the identity at `path`, or find the same one there; `RefusedError` when it is another, unless the column
    only grows: what it was before is then returned.

    notes: what else may change last bits, kept beside the versions of the packages.
    """
    if path.exists():
        found = read_identity(path, _remedy(path))
        if identity.is_grown_from(found):
            rewrite_identity(path, identity, _remedy(path))
            return found
        refuse_another(stage, dataset, path, identity)
        return None
    foreign = sorted(each.name for each in path.parent.iterdir() if each.suffix in (".tar", ".json"))
    if foreign:
        raise DataError(
            f"{path.parent}: holds {foreign[0]} but no {path.name}, so what wrote it is unknown; "
            "move the folder away, or write to another dataset"
        )
    if not write_identity(path, identity, _noted(notes)):  # another machine was faster
        refuse_another(stage, dataset, path, identity)
    return None


def take_back(path: Path, before: Identity) -> None:
    """Make the column whose identity is at `path` what it was `before` it was claimed to grow, by whoever claimed it
    and has its lock: the new shards go first. One killed in between leaves a growth that its command goes on with."""
    found = [(OF_A_SHARD.fullmatch(each.name), each) for each in path.parent.iterdir()]
    new = [each for match, each in found if match is not None and int(match[1]) >= before.plan["shards"]]
    with explained(path.parent):
        for each in sorted(new, key=lambda each: each.suffix != ".json"):  # without its receipt a shard is not there
            each.unlink(missing_ok=True)
        sync_folder(path.parent)
    rewrite_identity(path, before, _remedy(path))


def refuse_another(stage: Stage[Any], dataset: Dataset, path: Path, identity: Identity) -> None:
    """`RefusedError` where the folder has another identity; it says what else was made from it."""
    found = read_identity(path, _remedy(path))
    if found != identity and not identity.is_grown_from(found):
        refuse_other(path, found, identity, elsewhere=stage.elsewhere, also=dataset.made_from(stage.writes))


def tell_of_other_software(path: Path, notes: Mapping[str, str] | None, progress: Progress) -> None:
    """One line when the work that `path` claims was begun with other software than goes on with it now."""
    changes = software_changes(path, _noted(notes), _remedy(path))
    if changes:
        progress.message(
            f"{path.parent} was begun with other software, so the last digits of its parts may differ: "
            f"{'; '.join(changes)}; {path.name} names what it was begun with"
        )


def _noted(notes: Mapping[str, str] | None) -> dict[str, str]:
    return {"cpu_renderer": renderer_name(), **(notes or {})}


def _remedy(path: Path) -> str:
    return f"restore it from a copy, or delete {path.parent} and rerun the stage"


def remove_parts(folder: Path, names: list[str]) -> None:
    """Delete part files, as `part_path` names them, of the files whose names begin with one of `names`."""
    for path in folder.rglob(f"*{PART}"):
        if OWN_PART.fullmatch(path.name) and any(path.name.startswith(name) for name in names):
            path.unlink(missing_ok=True)

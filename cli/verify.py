"""`viewkit verify`: read every byte and compare it with its receipt."""

from typing import Annotated

import typer

from viewkit.cli.console import print_json, say
from viewkit.shards.errors import DataError


def verify(
    dataset: Annotated[str, typer.Argument(help="folder of the dataset", metavar="DATASET")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per finding.")] = False,
) -> None:
    """Read every byte of a dataset; a flipped bit, a cut or a missing row is found. Exit code 1 if there is one."""
    from viewkit.shards.dataset import Dataset
    from viewkit.shards.verify import verify as find

    found = Dataset(dataset)
    checked, problems, size = 0, 0, 0
    for finding in find(found) if found.path.is_dir() else ():
        checked += 1
        size += finding.checked_bytes
        problems += finding.problem is not None
        if as_json:
            print_json({"subject": finding.subject, "bytes": finding.checked_bytes, "problem": finding.problem})
        elif "unfinished" in finding.subject and finding.problem is None:
            say(f"{finding.subject}; rerun its stage, it goes on where it stopped")
        elif finding.problem is not None:
            say(f"damaged: {finding.subject}: {finding.problem}")
    if checked == 0:
        raise DataError(f"{dataset}: there is no dataset; make one with 'viewkit pack SOURCE {dataset}'")
    if problems:
        raise DataError(f"{dataset}: {problems} of {checked} parts are damaged; each line above says what to do")
    if not as_json:
        say(f"{dataset}: intact: {checked} parts, {size} bytes read")

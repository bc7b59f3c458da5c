"""`viewkit --help` against `python -c "import torch"`, as whole processes."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from harness import Fact, Row, compare, main

VIEWKIT = str(Path(sys.executable).with_name("viewkit"))


def run(rounds: int) -> tuple[Sequence[Row | Fact], Sequence[str]]:
    def process(*command: str) -> None:
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    def ours() -> None:
        process(VIEWKIT, "--help")

    def peer() -> None:
        process(sys.executable, "-c", "import torch")

    name = "viewkit --help / import torch (time)"
    return [compare(name, ours, peer, rounds, at_most=True)], []


if __name__ == "__main__":
    main("startup", run)

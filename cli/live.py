"""The live display of a job on a terminal: a bar with what a person wants to know, and how loss and kNN went."""

import sys
import time
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from viewkit.cli.console import printable
from viewkit.cli.progress import Chain, Counted, finish_line
from viewkit.cli.sparkline import bars_for

BAR_WIDTH = 30
REFRESHES_PER_S = 4


class LiveProgress(Counted):
    """Lines that rewrite themselves on a terminal; they vanish at the end, when one line says what was written."""

    def __init__(self, chain: Chain | None = None, console: Console | None = None) -> None:
        super().__init__(chain)
        self.console = console or Console(stderr=True)
        self.bars = bars_for(self.console.encoding)
        self.live = Live(
            console=self.console,
            transient=True,
            refresh_per_second=REFRESHES_PER_S,
            get_renderable=self.shown,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def shown(self) -> Group:
        """What the display looks like now."""
        line = Table.grid(padding=(0, 1))
        bar = ProgressBar(total=max(self.total, 1), completed=self.done if self.total else 1, width=BAR_WIDTH)
        line.add_row(Text(f"{self.chain.head}{self.stage}"), bar, Text(", ".join(self.parts())))
        return Group(line, *(Text(f"  {each}") for each in self.sparklines(self.bars)))

    def start(self, stage: str, total: int, unit: str, done: int = 0) -> None:
        super().start(stage, total, unit, done)
        self.live.start()

    def message(self, text: str) -> None:
        self.console.print(printable(text), markup=False, highlight=False)

    def finish(self, **summary: Any) -> None:
        self.stop()
        seconds = time.monotonic() - self.made
        self.message("; ".join([finish_line(summary, seconds), *self.sparklines(self.bars)]))

    def stop(self) -> None:
        self.live.stop()
        sys.stderr.flush()

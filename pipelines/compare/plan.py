"""What a comparison consists of: cells of runs, one per seed, and the controls that pay for a cell's cost."""

from collections.abc import Sequence
from dataclasses import dataclass

SHARED = 0.05
"""Relative difference in steps within which two arms share a control."""


@dataclass(frozen=True, order=True)
class Cell:
    """The runs of one arm at one length. control: it is there to pay for another arm's cost."""

    arm: str
    steps: int
    control: bool = False

    @property
    def label(self) -> str:
        return f"{self.arm}, {self.steps} steps"

    def run(self, comparison: str, seed: int) -> str:
        """The name of its run with this seed."""
        return f"{comparison}-{self.arm}-{self.steps}-{seed}"


@dataclass(frozen=True)
class Priced:
    """A cell of another arm in operations. total: of the cell, offline stages included. training, offline: of the
    reference at the same length."""

    cell: Cell
    total: float
    training: float
    offline: float = 0.0

    @property
    def ratio(self) -> float:
        """Of all costs to those of the reference."""
        return self.total / (self.training + self.offline)

    @property
    def paid_steps(self) -> int:
        """Steps after which the reference has cost as much: its offline stages are paid once, at any length."""
        return round(self.cell.steps * (self.total - self.offline) / self.training)


@dataclass(frozen=True)
class Control:
    """The reference trained longer by the cost of `of`. ratio: of that cost to the reference's at the same length."""

    of: Cell
    cell: Cell
    ratio: float


def plan_controls(reference: str, priced: Sequence[Priced]) -> list[Control]:
    """A control for every cell that costs more than the reference, by more than `SHARED`.

    Cells whose controls would have nearly as many steps share the longer one, so none is paid less than its cost. A
    control that is as long as one of the lengths is the reference's own cell there.
    """
    wanted = sorted(
        ((each.paid_steps, each.cell, each.ratio) for each in priced if each.ratio > 1 + SHARED), reverse=True
    )
    controls, longest = [], 0
    lengths = {each.cell.steps for each in priced}
    for steps, cell, ratio in wanted:
        if not longest or longest > steps * (1 + SHARED):
            longest = steps
        controls.append(Control(cell, Cell(reference, longest, control=longest not in lengths), ratio))
    return sorted(controls, key=lambda each: (each.of.steps, each.of.arm))

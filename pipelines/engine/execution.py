"""How a stage is run: what changes its speed and its safety, never its result."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from viewkit.shards.errors import ConfigError

MAX_PART = 20
"""Characters of ``--part``: Python refuses to read numbers of thousands of digits."""
MAX_WORKERS = 8
"""Workers that are started unless more are asked for: each loads its own models."""

RUNNING = "How it runs"
HERE, RAY = "here", "ray"


@dataclass(frozen=True, kw_only=True)
class Devices:
    """Options of a fit stage that are no part of its identity."""

    GROUP: ClassVar[str] = RUNNING

    device: Annotated[str, "where models run: auto, cpu, cuda, or a list such as cuda:0,cuda:1"] = "auto"
    profile: Annotated[
        str | None, "write what took how long to this file, NAME.json or NAME.json.gz, for ui.perfetto.dev"
    ] = None
    profile_kernels: Annotated[
        int, "with --profile: steps or batches of which torch's operators and GPU kernels are recorded, too"
    ] = 0

    def devices(self) -> list[str]:
        """The devices to use; `ConfigError` when one is asked for that is not there."""
        if self.device == "cpu":
            return ["cpu"]
        import torch

        found = [f"cuda:{index}" for index in range(torch.cuda.device_count())]
        if self.device == "auto":
            return found or ["cpu"]
        asked = found if self.device == "cuda" else [name.strip() for name in self.device.split(",")]
        absent = [name for name in asked if name not in [*found, "cpu"]]
        if absent or not asked:
            there = ", ".join(["cpu", *found])
            raise ConfigError(f"--device is {self.device!r}, and this machine has {there}; 'viewkit doctor' says more")
        return asked


@dataclass(frozen=True, kw_only=True)
class Spread(Devices):
    """Options of a fit stage whose parts several processes may do; no part of its identity."""

    GROUP: ClassVar[str] = RUNNING

    workers: Annotated[
        int | None,
        "processes; default: one per GPU, and on a CPU one, which computes on all cores; with --on ray at most so many",
    ] = None
    on: Annotated[
        str, "where parts are done: here, ray (the cluster it finds) or ray://HOST:PORT; see docs/cluster.md"
    ] = HERE

    def __post_init__(self) -> None:
        most = 8 * cores()
        if self.is_here and self.workers is not None and not 1 <= self.workers <= most:
            raise ConfigError(f"--workers is {self.workers}; it must lie in 1 ... {most}, eight per core")
        if not self.is_here:
            self._check_ray()

    @property
    def is_here(self) -> bool:
        """Whether the work is done on this machine."""
        return self.on == HERE

    def _check_ray(self) -> None:
        host, colon, port = self.on.removeprefix("ray://").rpartition(":")
        if self.on != RAY and not (self.on.startswith("ray://") and host and colon and port.isdecimal()):
            raise ConfigError(f"--on is '{self.on}'; it is {HERE}, {RAY} (the cluster it finds) or ray://HOST:PORT")
        if self.workers is not None and self.workers < 1:
            raise ConfigError(f"--workers is {self.workers}; with --on {RAY} it is a number of actors, at least 1")
        if self.device not in ("auto", "cpu", "cuda"):
            raise ConfigError(
                f"--device is '{self.device}', and with --on {RAY} it is auto, cpu or cuda: Ray says which GPU is free"
            )
        if self.profile is not None:
            raise ConfigError(
                f"--profile and --on {RAY} do not go together, the clocks of several machines differ; profile "
                "a little of it on one machine, with --workers"
            )

    def fit_processes(self, devices: Sequence[str]) -> int:
        """How many processes of this machine do the parts of a fit."""
        return self.workers or len(devices)


@dataclass(frozen=True, kw_only=True)
class Execution(Spread):
    """Options of a map stage that are no part of its identity."""

    GROUP: ClassVar[str] = RUNNING

    workers: Annotated[
        int | None,
        "processes; default: one per device, on a CPU one per core (at most 8); with --on ray at most so many",
    ] = None
    on: Annotated[
        str, "where shards are done: here, ray (the cluster it finds) or ray://HOST:PORT; see docs/cluster.md"
    ] = HERE
    part: Annotated[str, "work on part I of N only, as I/N counted from 0, e.g. from a Slurm array"] = "0/1"
    max_rejects: Annotated[float, "share of rejected rows above which the stage fails"] = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.max_rejects <= 1:
            raise ConfigError(f"--max-rejects is {self.max_rejects}; it is a share, from 0 to 1")
        self.part_of()

    def part_of(self) -> tuple[int, int]:
        """(i, n) of ``--part i/n``."""
        index, slash, count = self.part.partition("/")
        numbers = bool(slash) and index.isdecimal() and count.isdecimal() and len(self.part) <= MAX_PART
        if not (numbers and int(index) < int(count)):
            raise ConfigError(f"--part is {self.part[:MAX_PART]!r}; it must be I/N with 0 <= I < N, e.g. 0/4")
        return int(index), int(count)

    def num_workers(self, shards: int, devices: list[str]) -> int:
        """How many processes for `shards` shards."""
        default = min(cores(), MAX_WORKERS) if devices == ["cpu"] else len(devices)
        return max(1, min(self.workers or default, shards))

    def fit_processes(self, devices: Sequence[str]) -> int:
        """Of a fit that a column waits for; on a CPU one process, as the fit computes on all cores by itself."""
        return min(self.workers or len(devices), len(devices))


def is_part(execution: Devices) -> bool:
    """Whether this is one of several tasks that do a stage's work in parts (Slurm arrays)."""
    return isinstance(execution, Execution) and execution.part_of()[1] > 1


def cores() -> int:
    """Processor cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

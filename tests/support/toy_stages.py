"""Stages without models, small enough to interrupt and compare in every way. Importable from spawned workers."""

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from viewkit.pipelines.engine.contract import FitStage, MapStage, PartFn, Run, ShardFn
from viewkit.shards.dataset import Dataset
from viewkit.shards.document import canonical
from viewkit.shards.row import Reject, Row


@dataclass(frozen=True, kw_only=True)
class NumbersConfig:
    """Rows named 0 ... rows - 1."""

    rows: Annotated[int, "rows to write"] = 100
    rows_per_shard: Annotated[int, "rows a shard"] = 8
    seed: Annotated[int, "seed of every draw"] = 0


@dataclass(frozen=True)
class NumberSources:
    rows_in_all: int
    rows_per_shard: int
    notes: tuple[str, ...] = ()

    @property
    def num_rows(self) -> int:
        return self.rows_in_all

    @property
    def num_shards(self) -> int:
        return -(-self.rows_in_all // self.rows_per_shard)

    def keys(self, shard: int) -> Sequence[str]:
        first = shard * self.rows_per_shard
        return [f"row{place:05d}" for place in range(first, min(first + self.rows_per_shard, self.rows_in_all))]

    def rows(self, shard: int) -> Iterator[Row | Reject]:
        for key in self.keys(shard):
            if key.endswith("13"):
                yield Reject(key, "unreadable", "the toy source cannot read keys that end in 13")
            else:
                yield Row(key, {"txt": key.encode()})


class NumbersStage(MapStage[NumbersConfig]):
    """Writes `images`: random bytes that depend on (seed, key) alone; keys that end in 7 are rejects.

    pause_s: sleep a row, so that a test can interrupt. die_at: key at which the process kills itself, `times` times.
    """

    name = "numbers"
    uses_torch = False
    writes = "images"

    def __init__(self, pause_s: float = 0.0, die_at: str = "", deaths: Path | None = None, times: int = 0) -> None:
        self.pause_s, self.die_at, self.deaths, self.times = pause_s, die_at, deaths, times

    def reads(self, config: NumbersConfig) -> tuple[str, ...]:
        return ()

    def sources(self, config: NumbersConfig, dataset: Dataset) -> NumberSources:
        return NumberSources(config.rows, config.rows_per_shard)

    def prepare(self, config: NumbersConfig, run: Run) -> ShardFn:
        def transform(rows: Iterator[Row]) -> Iterator[Row | Reject]:
            for row in rows:
                time.sleep(self.pause_s)
                self._die(row.key)
                if row.key.endswith("7"):
                    yield Reject(row.key, "unlucky", "ends in 7")
                else:
                    generator = run.generator(row.key)
                    yield Row(row.key, {"bin": generator.bytes(int(generator.integers(1, 3000))), **row.fields})

        return transform

    def _die(self, key: str) -> None:
        if key == self.die_at and self.deaths is not None and len(list(self.deaths.iterdir())) < self.times:
            (self.deaths / str(time.monotonic_ns())).touch()
            os.kill(os.getpid(), signal.SIGKILL)


class UnlikeStage(NumbersStage):
    """The same rows with other bytes in every process, as a GPU's last digits differ."""

    def prepare(self, config: NumbersConfig, run: Run) -> ShardFn:
        plain = super().prepare(config, run)

        def transform(rows: Iterator[Row]) -> Iterator[Row | Reject]:
            for outcome in plain(rows):
                fields = {"bin": f"{os.getpid():09d}".encode()}
                yield Row(outcome.key, fields) if isinstance(outcome, Row) else outcome

        return transform


@dataclass(frozen=True, kw_only=True)
class LengthsConfig:
    factor: Annotated[int, "multiplies every length"] = 1


class LengthsStage(MapStage[LengthsConfig]):
    """Writes `lengths` from `images`; batches rows inside itself, as real stages do."""

    name = "lengths"
    uses_torch = False
    writes = "lengths"

    def reads(self, config: LengthsConfig) -> tuple[str, ...]:
        return ("images",)

    def prepare(self, config: LengthsConfig, run: Run) -> ShardFn:
        def transform(rows: Iterator[Row]) -> Iterator[Row | Reject]:
            for row in list(rows):
                length = len(row.fields["bin"]) * config.factor
                if length % 5 == 0:
                    yield Reject(row.key, "round_number")
                else:
                    yield Row(row.key, {"json": canonical({"length": length})})

        return transform


@dataclass(frozen=True, kw_only=True)
class TotalConfig:
    seed: Annotated[int, "seed of every draw"] = 0


class TotalStage(FitStage[TotalConfig]):
    """Writes `total`: the sum of all lengths."""

    name = "total"
    writes = "total"
    holds: ClassVar[Mapping[str, str]] = {"total.txt": "the sum", "metrics.jsonl": "the time"}

    def reads(self, config: TotalConfig) -> tuple[str, ...]:
        return ("images",)

    def fit(self, config: TotalConfig, run: Run) -> dict[str, int]:
        column = run.dataset.column("images")
        total = sum(len(column.fields(index)["bin"]) for index in range(column.num_rows))
        (run.folder / "total.txt").write_text(str(total))
        (run.folder / "metrics.jsonl").write_text(f"{time.time()}\n")
        return {"total": total}


@dataclass(frozen=True, kw_only=True)
class CountsConfig:
    at_once: Annotated[int, "rows a part"] = 5


class CountsStage(FitStage[CountsConfig]):
    """Writes `counts`: the sum of all lengths, and, in a second pass, how many are above their mean. In parts.

    deaths, times: the process kills itself over a part as long as there are fewer files there. pause_s: sleep at the
    first part, so that every process gets some. loads: in this process.
    """

    name = "counts"
    writes = "counts"
    in_parts = True
    holds: ClassVar[Mapping[str, str]] = {"counts.txt": "both numbers"}

    def __init__(self, deaths: Path | None = None, times: int = 0, pause_s: float = 0.0) -> None:
        self.deaths, self.times, self.pause_s, self.loads = deaths, times, pause_s, 0

    def reads(self, config: CountsConfig) -> tuple[str, ...]:
        return ("images",)

    def part_work(self, config: CountsConfig, run: Run) -> PartFn:
        column = run.dataset.column("images")
        self.loads += 1
        told: list[str] = []

        def count(part: tuple[range, float | None], report: Callable[[int | str], None]) -> int:
            if not told:
                told.append("loaded")
                run.progress.message("loaded")
                time.sleep(self.pause_s)
            if self.deaths is not None and len(list(self.deaths.iterdir())) < self.times:
                (self.deaths / str(time.monotonic_ns())).touch()
                os.kill(os.getpid(), signal.SIGKILL)
            rows, above = part
            sizes = [len(column.fields(place)["bin"]) for place in rows]
            report(len(rows))
            return sum(sizes) if above is None else sum(size > above for size in sizes)

        return count

    def fit(self, config: CountsConfig, run: Run) -> dict[str, int]:
        assert run.crew is not None
        rows = run.dataset.column("images").num_rows
        cuts = [range(start, min(start + config.at_once, rows)) for start in range(0, rows, config.at_once)]
        run.progress.start(self.name, 2 * rows, "rows")
        total = sum(found for _, found in run.crew.do([(cut, None) for cut in cuts]))
        larger = sum(found for _, found in run.crew.do([(cut, total / rows) for cut in cuts]))
        (run.folder / "counts.txt").write_text(f"{total} {larger}")
        return {"total": total, "larger": larger}

    def plan(self, config: CountsConfig, run: Run) -> dict[str, float]:
        return {"estimated_s": 10.0}

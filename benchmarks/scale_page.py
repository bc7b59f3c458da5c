"""docs/scale.md: what a million rows cost, as `scale.py` measured it, and what a billion would.

By the slopes of these measurements, and by the simulations of `cluster.py`.
"""

from collections.abc import Mapping
from typing import Any

BILLION = 1_000_000_000
ROWS_PER_SHARD = (1024, 16_384)
WRITES_A_SHARD = 4
"""Requests to an object store, as docs/stores.md counts them: tar, receipt, copy to its name, deletion."""
LISTED_AT_ONCE = 1000
"""Objects in an answer to a listing, of all files of the column; every receipt is then brought by one request."""
MEASURES = (
    ("first training batch, first opening", "first batch, first opening"),
    ("first training batch, later", "first batch, later"),
    ("`status`, first opening (`images` has an index)", "status, first opening"),
    ("`status`, later", "status, later"),
    ("a stage with nothing to do, later", "nothing to do, later"),
)
SIZES = ("10,000", "100,000", "1,000,000")
Results = Mapping[str, Mapping[str, Any]]
"""Name of a result file -> its content."""


def scale_page(results: Results) -> str:
    """The page; `KeyError` without the results of scale and cluster."""
    measured, simulated = (values_of(results[name]) for name in ("scale", "cluster"))
    return "\n".join([*opening_lines(measured), *billion_lines(measured), *cluster_lines(simulated), BREAKS])


def values_of(result: Mapping[str, Any]) -> dict[str, float]:
    return {row["what"]: row["value"] for row in result["rows"]}


def seconds(value: float) -> str:
    """In the unit that a person would use."""
    for unit, size in (("days", 86_400.0), ("h", 3600.0), ("min", 60.0)):
        if value >= 2 * size:
            return f"{value / size:.1f} {unit}"
    return f"{value:.2f} s"


def gigabytes(value: float) -> str:
    return f"{value / 1e9:.0f} GB"


def slope(measured: Mapping[str, float], name: str) -> float:
    """Seconds a row, between the two larger sizes: below a megabyte of receipts no index is kept."""
    return (measured[f"{name}, 1,000,000 rows: s"] - measured[f"{name}, 100,000 rows: s"]) / 900_000


def opening_lines(measured: Mapping[str, float]) -> list[str]:
    lines = [
        INTRODUCTION,
        "| seconds of a process's own work | 10,000 rows | 100,000 rows | 1,000,000 rows | a row more |",
        "|---|---|---|---|---|",
    ]
    for title, name in MEASURES:
        cells = [f"{measured[f'{name}, {size} rows: s']:.2f} s" for size in SIZES]
        lines.append(f"| {title} | {' | '.join(cells)} | {slope(measured, name) * 1e6:.2g} µs |")
    more = measured["first batch, 1,000,000 rows: MB above 10,000"]
    return [*lines, "", MEMORY.format(more=more)]


def billion_lines(measured: Mapping[str, float]) -> list[str]:
    rows = [
        (
            "first opening of a column ever, 10,000,000 rows",
            seconds(slope(measured, "first batch, first opening") * 1e7),
        ),
        ("first opening of a column ever", seconds(slope(measured, "first batch, first opening") * BILLION)),
        ("first training batch, later", seconds(slope(measured, "first batch, later") * BILLION)),
        ("`status`, later", seconds(slope(measured, "status, later") * BILLION)),
        ("a stage with nothing to do, later", seconds(slope(measured, "nothing to do, later") * BILLION)),
        ("receipts of a column", gigabytes(measured["receipts: bytes a row of images"] * BILLION)),
        ("index of a column, mapped", gigabytes(measured["index: bytes a row of images"] * BILLION)),
        (
            "mapped pages that the first batch touches",
            gigabytes(measured["first batch, 1,000,000 rows: MB above 10,000"] * 1e6 / 990_000 * BILLION),
        ),
    ]
    for size in ROWS_PER_SHARD:
        shards = -(-BILLION // size)
        rows.append((f"shards of {size:,} rows: files of a column", f"{2 * shards:,}"))
        written, opened = WRITES_A_SHARD * shards, shards + -(-2 * shards // LISTED_AT_ONCE)
        rows.append((f"shards of {size:,} rows: requests to a store that write a column", f"{written:,}"))
        rows.append((f"shards of {size:,} rows: requests that open it elsewhere", f"{opened:,}"))
    return [BY_SLOPES, "| of 1,000,000,000 rows | |", "|---|---|", *(f"| {what} | {cost} |" for what, cost in rows), ""]


def cluster_lines(simulated: Mapping[str, float]) -> list[str]:
    lines = [
        SIMULATED,
        "| generator, images/s of a GPU (input) | GPUs | until all is done | GPU-hours | GPU time / that of the images "
        "alone | hand-outs a shard |",
        "|---|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(what.rpartition(":")[0] for what in simulated):
        generator, rate, gpus = name.split(", ")
        days = simulated[f"{name}: days"]
        cells = [
            f"{generator}, {rate.split()[0]}",
            gpus.split()[0],
            seconds(days * 86_400),
            f"{days * 24 * int(gpus.split()[0]):,.0f}",
            f"{simulated[f'{name}: GPU time / that of the images alone']:.3f}",
            f"{simulated[f'{name}: hand-outs a shard']:.4f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    spent = [value for what, value in simulated.items() if what.endswith("us a shard")]
    return [*lines, "", DRIVER.format(least=min(spent), most=max(spent), rate=1e6 / max(spent))]


INTRODUCTION = """\
<!-- Generated by `python benchmarks/results.py` from scale.json and cluster.json of benchmarks/results. -->

# A million rows measured, a billion planned

`python benchmarks/scale.py` opens datasets of 8 px PNGs in shards of 1,024 rows, each measure in a process of its
own. The first opening ever of a column parses its receipts and leaves an index; every later one maps it
([pipeline](pipeline.md)). At 10,000 rows the smaller column's receipts are below a megabyte, so they are parsed each
time.
"""
MEMORY = """\
Memory of the first batch at 1,000,000 rows: {more:.0f} MB above that at 10,000, pages of the mapped index included.
Machine and commit: [benchmarks](benchmarks.md).
"""
BY_SLOPES = """\
## A billion rows, by the slopes

Not measured: the last column above times 10^9, and counts.
"""
SIMULATED = """\
## A billion images on a cluster, simulated

`python benchmarks/cluster.py` drives the scheduler of `--on ray` in simulated time. Nodes of eight GPUs fail every 50
days each and are back after an hour, workers take two minutes to start, shards take up to a tenth longer at random,
and one worker in 100,000 shards dies of something else. What a GPU does in a second is an input, about the goals of
`make gpu` on an H200, and was not measured; everything scales with it.
"""
DRIVER = """\
Scheduler and simulation together take {least:.0f} to {most:.0f} µs a shard, so one driver decides on up to
{rate:,.0f} shards a second; 512 GPUs at 400 images a second finish 200 shards of 1,024 rows a second. What Ray itself
takes for a call is not in these numbers.
"""
BREAKS = """\
## What breaks first

1. **The first opening.** Parsing receipts is one process's work, once a column and copy of the dataset, and more
   machines do not make it shorter.
2. **Small shards.** With 1,024 rows a shard two million files lie in one folder; listing and looking at each file's
   size takes most of a later opening. Pack with `--rows-per-shard 16384` from some ten million rows on: a sixteenth of
   the files, requests and hand-outs, and a failed node costs minutes more.
3. **Memory for the index.** It is mapped and shared by all processes of a machine, but an epoch in random order
   touches all of it; with less free memory than its size, every row costs a page fault more.
4. **A stage's own columns.** Whatever holds a number a row in memory grows with the rows: `evaluate`'s features, pair
   scores of `pretrain --select`, `foreground` with an index. At a billion rows, four bytes a row are 4 GB.
5. **GPU time, not machinery.** At four images a second a billion generated views take years of a GPU; `--subset`,
   `--speed` and smaller sides ([generators](generators.md)) are the levers. Failures, as assumed above, cost a
   fraction of a percent; where a job is over in an hour or two, it is the start of the workers that shows.
"""

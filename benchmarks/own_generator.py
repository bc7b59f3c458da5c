"""Is a generator of one's own any good? A small training on images, and its table of quality beside retrieval's.

    python benchmarks/own_generator.py SOURCE FOLDER --estimator preset=pico-32 --generator steps=1000 [--check]

SOURCE is anything that `viewkit pack` takes, e.g. demo:train. FOLDER keeps the dataset, so the program can be stopped
and repeated. Both generators then make views at levels 0 ... 999 of the images with the smallest key hashes, which the
own one was not trained on, and one judge compares them. With --check the exit status says whether the own generator
keeps the targets: a level costs fidelity and gives diversity, views at level 0 are nearer to their images than to
others, and they are no copies. Nothing is timed.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from viewkit.pipelines.engine.config import make_config
from viewkit.pipelines.engine.execution import Execution
from viewkit.pipelines.engine.run import run_stage
from viewkit.pipelines.estimator.config import EstimatorConfig
from viewkit.pipelines.estimator.stage import EstimatorStage
from viewkit.pipelines.foreground.stage import ForegroundStage
from viewkit.pipelines.generate.config import GenerateConfig
from viewkit.pipelines.generate.fidelity_config import FidelityConfig
from viewkit.pipelines.generate.fidelity_stage import FidelityStage
from viewkit.pipelines.generate.measures.table import ERRORS, doubts, table_lines
from viewkit.pipelines.generate.own.config import GeneratorConfig
from viewkit.pipelines.generate.own.facts import GeneratorFacts
from viewkit.pipelines.generate.own.stage import GeneratorStage, summary_lines
from viewkit.pipelines.generate.stage import GenerateStage
from viewkit.pipelines.pack.config import PackConfig
from viewkit.pipelines.pack.stage import PackStage
from viewkit.shards.dataset import Dataset

COMPARED = ("own", "retrieval")
TABLES = ("estimator", "generator", "generate")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("source", help="anything that viewkit pack takes, e.g. demo:train")
    parser.add_argument("folder", type=Path, help="keeps the dataset")
    for name in TABLES:
        parser.add_argument(f"--{name}", nargs="*", default=[], metavar="OPTION=VALUE", help=f"of viewkit {name}")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--check", action="store_true", help="exit with 1 unless the own generator keeps the targets")
    o = parser.parse_args()
    options = {name: options_of(getattr(o, name)) for name in TABLES}
    execution = Execution(device=o.device, max_rejects=1.0)
    dataset = Dataset(o.folder)
    run_stage(PackStage(o.source), PackConfig(), dataset, execution)
    run_stage(EstimatorStage(), make_config(EstimatorConfig, options["estimator"], "--estimator"), dataset, execution)
    run_stage(GeneratorStage(), make_config(GeneratorConfig, options["generator"], "--generator"), dataset, execution)
    print("\n".join(["", "own, on the way:", *summary_lines(dataset)]))
    held_out = int(dataset.artifact("generator").numbers["held_out"])
    for generator in COMPARED:
        given = {"subset": held_out, "views_per_image": 2, **options["generate"]}
        rows = compared(dataset, generator, given, execution)
        print("\n".join(["", f"{generator}, as generated:", *table_lines(rows)]))
    table = GeneratorFacts.read(dataset.artifact("generator")).table
    missed = [*doubts(table), *far_from_their_images(table)]
    print("\n".join(["", *(f"missed: {each}" for each in missed)] if missed else ["", "own keeps the targets"]))
    if o.check and missed:
        sys.exit(1)


def compared(
    dataset: Dataset, generator: str, options: Mapping[str, Any], execution: Execution
) -> Sequence[Mapping[str, Any]]:
    """The table of a generator's views at levels 0 ... 999."""
    values = {"generator": generator, "strategy": "spread", "sign": "+", "format": "png", **options}
    config = make_config(GenerateConfig, values, "--generate")
    run_stage(ForegroundStage(), config.foreground(), dataset, execution)
    column = f"genview_{generator}"
    run_stage(GenerateStage(column=column), config, dataset, execution)
    numbers = run_stage(FidelityStage(column=column), FidelityConfig(), dataset, execution).numbers
    rows: Sequence[Mapping[str, Any]] = numbers["table"]
    return rows


def far_from_their_images(table: Sequence[Mapping[str, Any]]) -> list[str]:
    """Views at the lowest level are to be nearer to their own images than to others."""
    low = table[0]
    if low["cosine"] > low["chance"] + ERRORS * low["cosine_error"]:
        return []
    return [f"cosine is {low['cosine']:.3f} at level {low['level']}, and by chance {low['chance']:.3f}"]


def options_of(words: Sequence[str]) -> dict[str, Any]:
    """``name=value`` words as options; values as JSON where they are, else as text."""
    found = {}
    for word in words:
        name, _, value = word.partition("=")
        try:
            found[name.replace("-", "_")] = json.loads(value)
        except ValueError:
            found[name.replace("-", "_")] = value
    return found


if __name__ == "__main__":
    main()

"""The studies of docs/evidence.md: runs them, keeps what they found, and writes the page from that.

    python benchmarks/evidence.py --out work [--only evidence-rounds,...] [--gpu] [--minutes 10]
    python benchmarks/evidence.py --page

The first command runs one experiment after the other and can be stopped and repeated; with --minutes it stops itself.
Every finished study leaves docs/evidence/NAME.json. The second writes the page from these files alone.
"""

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from evidence_page import FALSE, page, read
from evidence_picture import PICTURE, draw
from studies import CPU_STUDIES, STUDIES, Study, gpu_studies

DOCS = Path(__file__).parents[1] / "docs"
KEPT = "evidence"
LABELLED_TARS = ("pack.labels=none",)
"""For images in tars, which bring their labels as KEY.cls, in place of a folder a class."""
AREAS = ("roc_area", "roc_area_apart")
MEASURED = ("command", "compare", "costs", "audit")
"""What a study that is run again on other code must measure anew, to be kept anew."""


def command_of(study: Study, sources: tuple[str, str], out: Path, changes: Sequence[str] = ()) -> list[str]:
    source, test = sources
    changes = [word for change in (*study.changes, *changes) for word in ("--set", change)]
    return ["run", study.runs, source, str(out / study.dataset), "--test", test, *changes]


def shown_sources(study: Study) -> tuple[str, str]:
    """As a reader types them: images of one's own are called like the variables of `make evidence`."""
    source, test = study.images
    return (source, test) if ":" in source else (source.upper(), test.upper())


def run(command: Sequence[str], until: float | None) -> int | None:
    """Exit code of a study; None where its time was over, at `until`, in seconds of `time.monotonic`."""
    program = [sys.executable, "-m", "viewkit.cli", *command]
    with subprocess.Popen(program, env={"OMP_NUM_THREADS": "1", **os.environ}) as process:
        try:
            return process.wait(None if until is None else max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGTERM)
            return 0 if process.wait() == 0 else None


def keep(study: Study, out: Path, folder: Path, begun_at: str, changes: Sequence[str] = ()) -> Path:
    """Write what the page needs of a finished study; what is there already and says the same stays as it is.

    begun_at: the commit when the study was last started. changes: made to it beside its own.
    """
    dataset = out / study.dataset
    own = dataset / "compare" / study.comparison
    compared = json.loads((own / "compare.json").read_text())
    compared.pop("curves")
    audit = dataset / "audit" / "audit.json"
    found = {
        "study": study.name,
        "asks": study.asks,
        "command": "viewkit " + " ".join(command_of(study, shown_sources(study), Path(), changes)),
        "commit": begun_at,
        "machine": machine(study),
        "versions": {name: version(name) for name in ("torch", "numpy", "timm")},
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "compare": compared,
        "costs": json.loads((own / "costs.json").read_text()),
        "audit": audited(json.loads(audit.read_text())) if audit.is_file() else None,
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{study.name}.json"
    if path.is_file() and all(json.loads(path.read_text())[each] == found[each] for each in MEASURED):
        return path
    path.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    return path


def machine(study: Study) -> str:
    if study.on_gpu and torch.cuda.is_available():
        return str(torch.cuda.get_device_name())
    return f"{platform.machine()}, {os.cpu_count()} cores"


def commit() -> str:
    """Of the code that is run, with a + where it has changed since; empty outside of a checkout."""
    describe = ["git", "describe", "--always", "--abbrev=7", "--dirty=+", "--exclude=*"]
    return subprocess.run(describe, cwd=DOCS, capture_output=True, text=True, check=False).stdout.strip()


def audited(audit: Mapping[str, Any]) -> dict[str, Any] | None:
    """Shares of false positives and the rules' ROC areas; None where no objects are known, as of plain photographs."""
    questions = {each["name"]: each for each in audit["ground_truth"]}
    if FALSE not in questions:
        return None
    return {
        "false": {each["name"]: {name: each["bad"][FALSE][name] for name in ("share", "error")}
                  for each in audit["selections"] if FALSE in each["bad"]},
        "rules": {each["name"]: {area: [each[area], each[area.replace("area", "error")]] for area in AREAS}
                  for each in questions[FALSE]["rules"]},
    }  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("--page", action="store_true", help="write docs/evidence.md from the files that are there")
    parser.add_argument("--docs", type=Path, default=DOCS, help="folder of evidence.md and evidence/")
    parser.add_argument("--out", type=Path, help="folder of the datasets that the studies make")
    parser.add_argument("--only", default=None, help="studies, separated by commas (default: all with images)")
    parser.add_argument("--minutes", type=float, default=None, help="stop after this time; the same command goes on")
    parser.add_argument("--gpu", action="store_true", help="the studies that need one, in place of the others")
    parser.add_argument("--set", action="append", default=[], help="as in viewkit run; for trials")
    for name in ("cifar10", "imagenette"):
        parser.add_argument(f"--{name}", help=f"{name}'s training images: a source of `viewkit pack`")
        parser.add_argument(f"--{name}-test", help=f"{name}'s test images")
    options = parser.parse_args(arguments)
    if options.set and options.docs == DOCS:
        parser.error("--set is for trials; add --docs FOLDER, so that the published page stays as it is")
    if options.out is not None:
        usual = gpu_studies() if options.gpu else CPU_STUDIES
        chosen = options.only.split(",") if options.only else [study.name for study in usual]
        if unknown := set(chosen) - {study.name for study in STUDIES}:
            parser.error(f"--only names {', '.join(sorted(unknown))}; studies are {', '.join(s.name for s in STUDIES)}")
        until = None if options.minutes is None else time.monotonic() + 60 * options.minutes
        for study in [each for each in STUDIES if each.name in chosen]:
            given = [getattr(options, each, each) for each in study.images]
            if None in given:
                print(f"{study.name}: skipped, its images are not given (--{study.images[0]})")
                continue
            changes = [*options.set, *(LABELLED_TARS if given[0].endswith(".tar") else ())]
            begun_at = commit()
            code = run(command_of(study, (given[0], given[1]), options.out, changes), until)
            if code is None:
                print(f"{study.name}: stopped after {options.minutes:g} minutes; the same command goes on")
                return 0
            if code:
                return code
            print(f"{study.name}: {keep(study, options.out, options.docs / KEPT, begun_at, changes)}")
    if options.page or options.out is not None:
        (options.docs / "evidence.md").write_text(page(options.docs / KEPT))
        (options.docs / "pictures").mkdir(exist_ok=True)
        draw(read(options.docs / KEPT), options.docs / "pictures" / PICTURE)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Every program in benchmarks/ still starts, and does its work once at its smallest setting."""

import importlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_chain import photographs
from vs2fi_world import make_estimator, make_images, pictures

from viewkit.cli.chain import chain_of
from viewkit.pipelines.experiments.experiment import load_experiment, with_changes

FOLDER = Path(__file__).parents[1] / "benchmarks"
COMPARISONS = (
    "cluster",
    "evaluate",
    "feed",
    "formats",
    "generate",
    "house",
    "memory",
    "pack",
    "page",
    "scale",
    "score",
    "shards",
    "startup",
    "train_step",
    "views",
)
"""Programs of `harness.main`: with --smoke every comparison runs both sides once."""
ESTIMATOR = ("preset=pico-32", "epochs=1", "warmup_epochs=0", "batch_size=8", "hidden=32", "dim=16")


def start(program, *arguments):
    command = [sys.executable, str(FOLDER / f"{program}.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def loaded(program):
    """A program of this folder as a module."""
    spec = importlib.util.spec_from_file_location(f"{program}_program", FOLDER / f"{program}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """24 photographs in three classes, without the two broken files."""
    folder = photographs(tmp_path_factory.mktemp("photographs"))
    for broken in ("class0/empty.png", "class1/text.jpg"):
        (folder / broken).unlink()
    return folder


def test_every_program_is_started_by_a_test():
    shared = {"harness", "results", "gpu_checks", "studies", "evidence_page", "evidence_picture", "scale_page"}
    programs = {path.stem for path in FOLDER.glob("*.py")} - shared
    assert programs == {*COMPARISONS, "evidence", "foreground", "gpu", "own_generator", "vs2fi"}


@pytest.mark.slow
@pytest.mark.parametrize("program", COMPARISONS)
def test_every_comparison_of_a_program_runs_once(program):
    if program == "train_step":
        pytest.importorskip("lightly")
    if program == "page" and shutil.which("chromium") is None:
        pytest.skip("there is no chromium on this machine")
    done = start(program, "--smoke")
    assert done.returncode == 0 and "others' cores" in done.stdout, done.stderr[-2000:]


def test_a_billion_rows_are_counted_by_the_slopes_of_a_million():
    page = loaded("scale_page")
    measured = {f"{name}, {size} rows: s": 1.0 for _, name in page.MEASURES for size in page.SIZES}
    measured |= {"first batch, first opening, 1,000,000 rows: s": 19.0, "status, later, 1,000,000 rows: s": 1.09}
    measured |= {"receipts: bytes a row of images": 120.0, "index: bytes a row of images": 130.0}
    measured |= {"first batch, 1,000,000 rows: MB above 10,000": 99.0}
    simulated = {
        "own, 400 images/s a GPU, 512 GPUs: days": 2.5,
        "own, 400 images/s a GPU, 512 GPUs: GPU time / that of the images alone": 1.02,
        "own, 400 images/s a GPU, 512 GPUs: hand-outs a shard": 1.0004,
        "own, 400 images/s a GPU, 512 GPUs: scheduler and simulation, us a shard": 4.0,
    }
    results = {"scale": measured, "cluster": simulated}
    text = page.scale_page(
        {
            name: {"rows": [{"what": what, "value": value} for what, value in rows.items()]}
            for name, rows in results.items()
        }
    )
    assert "| first training batch, first opening | 1.00 s | 1.00 s | 19.00 s | 20 µs |" in text
    assert "| first opening of a column ever | 5.6 h |" in text and "10,000,000 rows | 3.3 min |" in text
    assert "| `status`, later | 100.00 s |" in text
    assert (
        "| receipts of a column | 120 GB |" in text and "| mapped pages that the first batch touches | 100 GB |" in text
    )
    assert (
        "files of a column | 1,953,126 |" in text
        and "that write a column | 3,906,252 |" in text
        and "open it elsewhere | 61,159 |" in text
    )
    assert "| own, 400 | 512 | 2.5 days | 30,720 | 1.020 | 1.0004 |" in text and "250,000 shards a second" in text


@pytest.mark.slow
@pytest.mark.parametrize("part", [1, 2, 3, 4, 5])
def test_every_part_for_a_gpu_runs_in_miniature_and_goes_on(part, tmp_path):
    command = ("gpu", "--part", part, "--device", "cpu", "--tiny", "--out", tmp_path)
    done = start(*command)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads((tmp_path / f"gpu-{part}.json").read_text())
    names = [row["what"] for row in found["rows"]]
    assert len(names) == len(set(names)) > 0 and len(found["done"]) == len(set(found["done"]))
    again = start(*command)
    assert again.returncode == 0 and again.stdout.count("there already") == len(found["done"])


@pytest.mark.slow
def test_the_indicators_are_measured_on_a_tiny_dataset(images, tmp_path):
    options = ("--no-control", "--pack", "labels=folders", "--estimator", *ESTIMATOR, "--score", "rounds=1")
    done = start("vs2fi", images, tmp_path, *options, "--audit", "images=16")
    assert done.returncode == 0 and "kNN 20, leave-one-out" in done.stdout, done.stderr[-2000:]


@pytest.mark.slow
def test_a_generator_of_ones_own_is_measured_beside_retrieval(tmp_path):
    (tmp_path / "images").mkdir()
    for number, png in enumerate(pictures(48)):
        (tmp_path / "images" / f"{number:02}.png").write_bytes(png)
    small = ("preset=pico-32", "width=16", "steps=3", "batch_size=8", "held_out=8", "sampling_steps=1")
    generated = ("--generate", "steps=1", "subset=24", "sample=24")
    command = (tmp_path / "images", tmp_path / "data", "--estimator", *ESTIMATOR, "--generator", *small, *generated)
    done = start("own_generator", *command, "--device", "cpu", "--check")
    assert "retrieval, as generated:" in done.stdout, done.stderr[-2000:]
    assert done.returncode == 1 and "missed: cosine is" in done.stdout  # three steps teach nothing


@pytest.mark.slow
def test_the_foreground_program_says_that_it_needs_masks(tmp_path):
    dataset = make_images(tmp_path / "data")
    make_estimator(dataset)
    done = start("foreground", dataset.path, "--encoder", "estimator")
    assert done.returncode != 0 and "row0" in done.stderr and "has no mask.png" in done.stderr, done.stderr[-2000:]


@pytest.mark.slow
def test_a_study_stops_after_its_time_goes_on_and_fills_the_page(tmp_path):
    small = ("compare.seeds=2", "compare.lengths=2", "pack.mosaics=64", "pretrain.batch_size=16")
    changes = [word for change in small for word in ("--set", change)]
    command = ("evidence", "--out", tmp_path / "work", "--docs", tmp_path, "--only", "evidence-rounds", *changes)
    stopped = start(*command, "--minutes", "0.02")
    assert stopped.returncode == 0 and "stopped after 0.02 minutes; the same command goes on" in stopped.stdout
    assert not (tmp_path / "evidence").exists()
    done = start(*command)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads((tmp_path / "evidence" / "evidence-rounds.json").read_text())
    assert {each["arm"] for each in found["compare"]["arms"]} >= {"random", "stored_1", "overlap_16"}
    assert all(change in found["command"] for change in small)
    page = (tmp_path / "evidence.md").read_text()
    assert "2 steps, against `random`:" in page and "| `overlap_4` |" in page
    assert "not decidable at this size" in page  # two seeds decide nothing


def test_the_page_of_evidence_is_made_of_the_files_that_are_there(monkeypatch):
    docs = FOLDER.parent / "docs"
    monkeypatch.syspath_prepend(str(FOLDER))
    program = importlib.import_module("evidence")
    assert (docs / "evidence.md").read_text() == program.page(docs / "evidence")
    assert {path.stem for path in (docs / "evidence").glob("*.json")} <= {each.name for each in program.STUDIES}
    for study in program.STUDIES:  # their changes fit their experiments
        chain_of(with_changes(load_experiment(study.runs), study.changes), "a", Path("b"), Path("c"), "d")

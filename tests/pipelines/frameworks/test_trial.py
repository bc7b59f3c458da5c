"""Trials: a framework, and a multi-view loss, added from outside: its file and one line of a table."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from vs2fi_world import make_images

pytestmark = pytest.mark.slow

SUPPORT = Path(__file__).parents[2] / "support"
SMALL = ("--arch", "resnet10_narrow", "--side-px", "16", "--batch-size", "8", "--steps", "2", "--warmup-epochs", "0")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return make_images(tmp_path_factory.mktemp("trial") / "d")


def viewkit(line, *arguments):
    """Exit code, output and errors of `viewkit` with one more line in a table."""
    command = [sys.executable, str(SUPPORT / "toy_line.py"), line, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(SUPPORT), "COLUMNS": "400", "OMP_NUM_THREADS": "1"}
    said = subprocess.run(command, capture_output=True, text=True, env=environment)
    return said.returncode, said.stdout, said.stderr


def pretrain(line, dataset, name, *options):
    return viewkit(line, "pretrain", dataset.path, "--name", name, "--device", "cpu", *SMALL, *options)


def last_line(dataset, name):
    return json.loads((dataset.path / "runs" / name / "metrics.jsonl").read_text().splitlines()[-1])


def test_a_framework_is_its_file_and_one_line(dataset):
    code, _, errors = pretrain("framework", dataset, "toy", "--framework", "toy", "--toy-option", 3)
    assert code == 0, errors
    said = json.loads((dataset.path / "runs" / "toy" / "config.json").read_text())
    assert (said["framework"], said["toy_option"], said["dim"], said["policy"]) == ("toy", 3, 8, "simclr")
    assert last_line(dataset, "toy")["step"] == 2


def test_help_lists_the_framework_and_its_option():
    code, out, _ = viewkit("framework", "pretrain", "--help")
    assert code == 0 and "toy: power of the distance between two views (default: 2)" in " ".join(out.split())
    assert "barlow_twins|toy" in out.replace(" ", "")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--framework", "toy", "--toy-option", 9), "toy_option is 9; it must lie in 1 ... 4"),
        (
            ("--framework", "toy", "--tau", 0.2),
            "tau is 0.2: toy on a resnet has no such option; it has dim, toy_op",
        ),
        (("--framework", "byol", "--toy-option", 2), "toy_option is 2: byol on a resnet has no such option"),
        (("--framework", "toy", "--select", "hard"), "its targets are shares of a whole batch"),
        (
            ("--framework", "toy", "--multi-view", "fea_avg"),
            "it needs a loss that compares directions, so one of simclr, moco_v1, moco_v2, moco_v3, byol, simsiam",
        ),
    ],
)
def test_what_does_not_fit_the_card_is_refused(dataset, options, message):
    code, _, errors = pretrain("framework", dataset, "refused", *options)
    assert code == 2 and message in errors and errors.count("\n") == 1


def test_a_multi_view_loss_is_one_entry(dataset):
    options = ("--views-per-side", 2, "--multi-view", "toy", "--hidden", 16, "--dim", 16)
    code, _, errors = pretrain("multi_view", dataset, "sides", "--framework", "simsiam", *options)
    assert code == 0, errors
    assert last_line(dataset, "sides")["step"] == 2
    code, _, errors = pretrain("multi_view", dataset, "no", "--framework", "vicreg", *options)
    assert code == 2 and "multi_view is 'toy' with views_per_side 2: it needs a loss that compares directions" in errors


def test_the_tables_are_read_without_torch():
    code = (
        "import sys; import viewkit.pipelines.pretrain.config, viewkit.pipelines.estimator.config; "
        "print(*sorted({'torch', 'timm', 'scipy', 'sklearn'} & set(sys.modules)))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout == "\n"

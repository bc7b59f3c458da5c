"""A trial: a policy of one's own is one TOML file, for looking at it and for training with it; nothing else changes."""

import json
import subprocess
import sys

import pytest
from vs2fi_world import make_images

from viewkit.pipelines.views.policies import load_policy

pytestmark = pytest.mark.slow

POLICY = """
side_px = 16
num_views = 2
mean = [0.5, 0.5, 0.5]
std = [0.25, 0.25, 0.25]
[[views]]
area = [0.3, 1]
p_blur = 0.5
[[views]]
area = [0.3, 1]
grey_first = true
magnitude = 5
p_randaugment = 0.2
[[joint]]
parameter = "area"
beta = -1
specs = [0, 1]
[iou]
start = 0.9
end = 0.95
"""


def viewkit(*arguments):
    command = [sys.executable, "-m", "viewkit.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return make_images(tmp_path_factory.mktemp("trial") / "d")


def test_a_policy_of_ones_own_is_one_file(dataset, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(POLICY)
    sheet = viewkit("views", dataset.path, tmp_path / "sheet.png", "--policy", path, "--images", 2, "--num-views", 2)
    assert sheet.returncode == 0 and "2 views each by policy 'mine'" in sheet.stdout, sheet.stderr
    assert (tmp_path / "sheet.png").read_bytes().startswith(b"\x89PNG")
    options = ("--framework", "simsiam", "--arch", "resnet10_narrow", "--hidden", 16, "--dim", 16, "--side-px", 16)
    run = viewkit(
        "pretrain", dataset.path, "--name", "trial", "--policy", path, *options, "--steps", 2, "--batch-size", 8,
        "--warmup-epochs", 0,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    facts = json.loads((dataset.path / "runs" / "trial" / "encoder.json").read_text())
    assert facts["mean"] == [0.5, 0.5, 0.5] and facts["std"] == [0.25, 0.25, 0.25]
    assert load_policy(str(path)).joint[0].specs == (0, 1)


def test_an_old_name_and_a_slip_in_the_file_are_refused_before_anything_is_written(dataset, tmp_path):
    path = tmp_path / "mine.toml"
    for wrong, message in (
        (POLICY.replace("specs =", "laws ="), "joint: option 'laws' is now 'specs'"),
        (POLICY.replace("p_blur =", "blur ="), "views 0: unknown option 'blur'"),
    ):
        path.write_text(wrong)
        done = viewkit("views", dataset.path, tmp_path / "none.png", "--policy", path)
        assert done.returncode == 2 and message in done.stderr and "mine.toml" in done.stderr
        assert not (tmp_path / "none.png").exists()

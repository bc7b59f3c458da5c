"""A policy is one TOML file: the one of docs/extend.md, drawn, and in an identity by its name and content."""

import numpy as np
from pages import code_after
from PIL import Image

from viewkit.cli.main import run
from viewkit.pipelines.engine.config import identity_values
from viewkit.pipelines.score.config import ScoreConfig
from viewkit.pipelines.views.policies import load_policy
from viewkit.pipelines.views.policy import ViewSpec


def test_the_policy_of_the_page_changes_what_it_names_and_nothing_else(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(code_after("## A policy", "toml"))
    mine, base = load_policy(str(path)), load_policy("simclr")
    assert mine.views[0] == ViewSpec(area=(0.3, 1.0), p_grey=0.5)
    assert (mine.side_px, mine.mean, mine.std, mine.joint) == (48, base.mean, base.std, base.joint)


def test_it_is_drawn_by_the_command_of_the_page(tmp_path):
    (tmp_path / "in").mkdir()
    for place in range(3):
        Image.fromarray(np.full((40, 40, 3), 60 * place, np.uint8)).save(tmp_path / "in" / f"{place}.png")
    (tmp_path / "mine.toml").write_text(code_after("## A policy", "toml"))
    assert run(["pack", str(tmp_path / "in"), str(tmp_path / "data"), "--workers", "1"]) == 0
    sheet = tmp_path / "sheet.png"
    assert run(["views", str(tmp_path / "data"), str(sheet), "--policy", str(tmp_path / "mine.toml")]) == 0
    assert Image.open(sheet).size[0] > 0


def test_an_identity_holds_the_files_name_and_not_its_folder(tmp_path):
    assert identity_values(ScoreConfig(policy=str(tmp_path / "mine.toml")))["policy"] == "mine.toml"
    assert identity_values(ScoreConfig(policy="simclr"))["policy"] == "simclr"

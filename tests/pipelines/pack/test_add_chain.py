"""The chain of commands on a dataset that has grown: what was made stays, and what is new is made of it."""

import pytest
from small_datasets import contents
from world import COMMANDS, fill, photographs

from viewkit.cli.main import run

CHAIN = ("pack", "estimator", "generate", "histograms", "score", "rescore")


@pytest.mark.slow
def test_every_column_of_a_grown_dataset_keeps_its_shards_and_gets_new_ones(tmp_path, capsys):
    source, dataset = tmp_path / "in", tmp_path / "out"
    photographs(source)

    def everything(*more: str) -> dict[str, bytes]:
        for name in CHAIN:
            argv = fill(COMMANDS[name], source, dataset, tmp_path)
            assert run([*argv, *(more if name == "pack" else ())]) == 0, capsys.readouterr()
        return contents(dataset)

    before = everything()
    photographs(tmp_path / "more", seed=1)
    for path in sorted((tmp_path / "more").rglob("*.png"))[:10]:
        path.rename(source / path.parent.name / f"new_{path.name}")
    after = everything("--add")
    rewritten = {f"{column}/column.json" for column in ("images", "genview", "pairs", "pairs_rescored")}
    assert {name for name in before if after[name] != before[name]} <= rewritten
    new = {name.split("/")[0] for name in after.keys() - before.keys()}
    assert new == {"images", "genview", "pairs", "pairs_rescored"}
    capsys.readouterr()
    assert run(["verify", str(dataset)]) == 0 and run(["status", str(dataset)]) == 0
    said = capsys.readouterr().out
    assert "stale" not in said and "lacks" not in said and said.count("of before 'images' grew") == 3
    assert everything("--add") == after

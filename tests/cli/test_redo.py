"""``--redo``: what a command would replace goes, with all that was made from it, and nothing else."""

import json

import pytest
from PIL import Image
from small_datasets import contents
from toy_stages import LengthsConfig, LengthsStage, NumbersConfig, NumbersStage, TotalConfig, TotalStage

from viewkit.pipelines.engine.execution import Execution
from viewkit.pipelines.engine.redo import replaced_by
from viewkit.pipelines.engine.run import run_stage
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ConfigError, DataError, RefusedError
from viewkit.shards.removal import remove

ONE = Execution(workers=1, max_rejects=1.0)
FILES = {"total": ["total.txt", "metrics.jsonl"]}


@pytest.fixture
def dataset(tmp_path):
    """images -> lengths and total."""
    made = Dataset(tmp_path)
    run_stage(NumbersStage(), NumbersConfig(rows=12), made, ONE)
    run_stage(LengthsStage(), LengthsConfig(), made, ONE)
    run_stage(TotalStage(), TotalConfig(), made, ONE)
    return made


def remove_all(dataset, names):
    remove(dataset, names, lambda stage: FILES.get(stage, []))


def test_what_is_the_same_stays(dataset):
    assert replaced_by(NumbersStage(), NumbersConfig(rows=12), dataset, ONE) == []
    assert replaced_by(TotalStage(), TotalConfig(), dataset, ONE) == []


def test_other_settings_replace_the_column_and_all_that_was_made_from_it(dataset):
    names = replaced_by(NumbersStage(), NumbersConfig(rows=13), dataset, ONE)
    assert names == ["images", "lengths", "total"]
    assert replaced_by(LengthsStage(), LengthsConfig(factor=2), dataset, ONE) == ["lengths"]
    remove_all(dataset, names)
    assert dataset.columns() == dataset.artifacts() == []
    assert sorted(path.name for path in dataset.path.iterdir()) == [".locks"]
    run_stage(NumbersStage(), NumbersConfig(rows=13), dataset, ONE)


def test_a_file_of_the_user_is_never_deleted_and_nothing_goes_before_all_was_looked_through(dataset):
    notes = dataset.path / "total" / "notes.txt"
    notes.write_text("mine")
    before = contents(dataset.path)
    with pytest.raises(RefusedError, match=r"notes\.txt was not written by viewkit"):
        remove_all(dataset, ["images", "lengths", "total"])
    assert contents(dataset.path) == before
    notes.rename(dataset.path / "total" / "unfinished.tar")
    with pytest.raises(RefusedError, match=r"unfinished\.tar was not written by viewkit"):
        remove_all(dataset, ["total"])
    (dataset.path / "total" / "unfinished.tar").rename(dataset.path / "images" / "notes.tar.gz")
    with pytest.raises(RefusedError, match=r"notes\.tar\.gz was not written by viewkit"):
        remove_all(dataset, ["images"])


def test_refusals_name_all_that_must_go_in_plain_words(dataset):
    with pytest.raises(RefusedError) as refused:
        run_stage(NumbersStage(), NumbersConfig(rows=13), dataset, ONE)
    assert str(refused.value).endswith(
        f"config.rows is 12 there and 13 now; it has 12 rows and would have 13 now; use the same settings, another "
        f"dataset, or add --redo, which deletes {dataset.path / 'images'} and what was made from it (lengths, total) "
        "and writes it anew"
    )
    remove_all(dataset, ["images"])
    run_stage(NumbersStage(), NumbersConfig(rows=13), dataset, ONE)
    with pytest.raises(DataError, match=r"delete \S+lengths and rerun 'viewkit lengths' \(its --redo deletes it\)"):
        dataset.check_inputs("lengths")


def test_tasks_of_an_array_do_not_redo(dataset):
    with pytest.raises(ConfigError, match="--redo and --part do not go together"):
        replaced_by(NumbersStage(), NumbersConfig(rows=13), dataset, Execution(part="0/2"))


def test_the_command_says_what_it_deletes(capsys, tmp_path):
    from viewkit.cli.main import run

    for number in range(6):
        Image.new("RGB", (20, 20), (number, 0, 0)).save(tmp_path / f"{number}.png")
    data = str(tmp_path / "data")
    pack = ["pack", str(tmp_path), data, "--workers", "1"]
    assert run(pack) == 0
    capsys.readouterr()
    other = [*pack, "--rows-per-shard", "4", "--redo"]
    assert run([*other, "--dry-run"]) == 0
    assert "pack: --redo would delete images" in capsys.readouterr().out
    assert Dataset(data).column("images").num_shards == 1
    assert run([*other, "--json"]) == 0
    first = json.loads(capsys.readouterr().out.splitlines()[0])
    assert (first["event"], first["names"]) == ("removed", ["images"])
    assert run(other) == 0
    assert "delete" not in capsys.readouterr().out


class RefusedStage(LengthsStage):
    """Refuses when its models are loaded, as `score` does for histograms of another policy."""

    def prepare(self, config, run):
        raise ConfigError("the histograms are of another policy")


def test_a_refused_column_leaves_no_trace_and_the_corrected_command_is_not_refused(dataset):
    remove_all(dataset, ["lengths"])
    before = contents(dataset.path)
    with pytest.raises(ConfigError, match="another policy"):
        run_stage(RefusedStage(), LengthsConfig(factor=2), dataset, ONE)
    assert contents(dataset.path) == before
    run_stage(LengthsStage(), LengthsConfig(), dataset, ONE)


def test_a_claim_under_which_nothing_was_written_is_replaced(dataset):
    remove_all(dataset, ["lengths"])
    run_stage(LengthsStage(), LengthsConfig(factor=2), dataset, ONE)
    for path in (dataset.path / "lengths").iterdir():
        if path.name != "column.json":
            path.unlink()
    run_stage(LengthsStage(), LengthsConfig(), dataset, ONE)
    assert dataset.column("lengths").identity.config == {"factor": 1}

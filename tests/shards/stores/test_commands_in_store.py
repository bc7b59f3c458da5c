"""Commands of several stages with datasets in a store, as a user types them."""

import shutil

import pytest
from stored_column import upload
from tiny_chain import photographs
from tiny_experiment import COMPARISON

from viewkit.cli.main import run
from viewkit.shards.dataset import Dataset
from viewkit.shards.stores.mounts import MOUNTED
from viewkit.shards.verify import verify

pytestmark = pytest.mark.slow
COMPARED = 'next = ["viewkit status {dataset}"]' + COMPARISON.replace("[2, 3]", "[2]")


@pytest.fixture(scope="module")
def halves(tmp_path_factory):
    """Photographs to train and to test on, without broken ones."""
    folder = tmp_path_factory.mktemp("halves")
    for name, keep in (("train", 0), ("test", 1)):
        source = photographs(folder / name)
        (source / "class0" / "empty.png").unlink()
        (source / "class1" / "text.jpg").unlink()
        for path in sorted(source.rglob("*.png"))[keep::2]:
            path.unlink()
    return folder


def test_an_experiment_runs_from_a_store_into_a_store_and_is_compared_on_another_machine(
    place, halves, monkeypatch, tmp_path, capsys
):
    path = tmp_path / "tiny.toml"
    path.write_text(COMPARED)
    train, test = (upload(halves / name, f"{place}-{name}-images") for name in ("train", "test"))
    assert run(["run", str(path), train, place, "--test", test, "--device", "cpu", "--workers", "1"]) == 0
    said = capsys.readouterr().out
    assert f"The page: {place}/report/index.html\n" in said and "s3:/shelf" not in said
    assert f"Go on with:\n  viewkit status {place}\n" in said
    MOUNTED.clear()
    monkeypatch.setenv("VIEWKIT_CACHE", str(tmp_path / "elsewhere"))
    line = ["compare", place, f"{place}-test", "--experiment", str(path), "--name", "tiny", "--device", "cpu"]
    assert run([*line, "--dry-run"]) == 0
    assert "random, 2 steps: 2 of 2 runs are there\n" in capsys.readouterr().out
    assert run([*line, "--jobs", "1"]) == 0
    captured = capsys.readouterr()
    verdict = next(each for each in captured.out.splitlines() if each.startswith("joint, 2 steps, knn5: "))
    assert verdict in said and f"compare: already there: {place}/compare/tiny" in captured.err
    findings = list(verify(Dataset(place)))
    assert len(findings) > 20 and [each.problem for each in findings if each.problem] == []


def test_scripts_for_slurm_name_the_place_in_full(place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(["slurm", "demo", f"{place}-images", place, "--test", "demo:test", "--to", "scripts"]) == 0
    scripts = [path.read_text() for path in (tmp_path / "scripts").glob("*.sbatch")]
    assert scripts and all(f" demo {place}-images {place} --test demo:test " in text for text in scripts)


def test_labels_are_attached_to_a_dataset_in_a_store(place, halves, tmp_path, capsys):
    assert run(["pack", str(halves / "test"), place, "--workers", "1"]) == 0
    shutil.copytree(halves / "test", tmp_path / "sorted")
    line = ["label", place, "--from", str(tmp_path / "sorted")]
    assert run(line) == 0
    captured = capsys.readouterr()
    assert f"label: done: {place}/labels" in captured.out + captured.err
    labels = Dataset(place).artifact("labels").numbers
    assert labels == {"labelled": 12, "images": 12, "classes": 3, "unmatched": 0}
    assert run([*line, "--match", "name"]) == 3
    assert f"add --redo, which deletes {place}/labels" in capsys.readouterr().err
    assert run([*line, "--match", "name", "--redo"]) == 0
    assert Dataset(place).artifact("labels").identity.config["match"] == "name"
    capsys.readouterr()
    assert run(["label", place]) == 2
    assert capsys.readouterr().err.startswith("error: label: --from is needed")
    assert run(["label", f"{place}-none", "--from", str(tmp_path / "sorted")]) == 1
    assert f"'viewkit pack SOURCE {place}-none'" in capsys.readouterr().err

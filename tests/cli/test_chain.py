"""The jobs that an experiment's tables become: labels of every kind of source, texts, baselines, what is left to do."""

import io
import tarfile
from pathlib import Path

import pytest
from tiny_chain import photographs
from tiny_experiment import COMPARISON, EXPERIMENT

from viewkit.cli.chain import chain_of, chosen
from viewkit.cli.jobs import checked_jobs
from viewkit.cli.main import run
from viewkit.pipelines.experiments.experiment import load_experiment, with_changes
from viewkit.pipelines.experiments.rehearse import BATCH, rehearsal_of
from viewkit.pipelines.pack.source import labels_option
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ConfigError


@pytest.fixture
def tiny(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(EXPERIMENT)
    return str(path)


def tar_of(folder, path):
    """The images of class folders as a WebDataset tar, with a class beside each."""
    classes = sorted(each.name for each in folder.iterdir() if each.is_dir())
    with tarfile.open(path, "w") as tar:
        for place, image in enumerate(sorted(folder.glob("*/*"))):
            label = str(classes.index(image.parent.name)).encode()
            for suffix, content in ((image.suffix, image.read_bytes()), (".cls", label)):
                member = tarfile.TarInfo(f"{place:04}{suffix}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    return path


def jobs_of(path, tmp_path, *changes, source="images", test="test"):
    experiment = with_changes(load_experiment(path), changes)
    return chain_of(experiment, str(source), tmp_path / "d", tmp_path / "t", str(test))


def test_labels_come_from_folders_or_are_brought(tmp_path):
    images = photographs(tmp_path / "images")
    tar = tar_of(images, tmp_path / "test.tar")
    folder = tmp_path / "tars"
    folder.mkdir()
    tar_of(images, folder / "0.tar")
    assert [labels_option(str(each)) for each in (images, tar, folder)] == ["folders", "none", "none"]
    assert labels_option("torchvision:cifar10:test:somewhere") == "none" and labels_option("demo:test") == "folders"
    assert labels_option(str(tmp_path / "nowhere")) == "folders"


def test_labelled_test_images_in_a_tar_are_packed_with_their_labels(tiny, tmp_path):
    images = photographs(tmp_path / "images")
    tar = tar_of(images, tmp_path / "test.tar")
    line = ["run", tiny, str(images), str(tmp_path / "data"), "--test", str(tar), "--max-rejects", "1"]
    assert run([*line, "--only", "pack,pack test", "--device", "cpu"]) == 0
    column = Dataset(tmp_path / "data-test").column("images")
    assert column.num_rows and column.index.has(("cls",)).all()


def test_a_base_lies_beside_the_file_that_names_it(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "base.toml").write_text(EXPERIMENT)
    (tmp_path / "sub" / "mine.toml").write_text('title = "x"\nbase = "base.toml"\n[pretrain]\nsteps = 7\n')
    assert load_experiment(str(tmp_path / "sub" / "mine.toml")).run_options("two")["steps"] == 7


@pytest.mark.parametrize(("change", "kept"), [("evaluate.k=20", "20"), ("evaluate.rates=0.1", "0.1")])
def test_a_list_of_one_number_may_be_given_as_that_number(tiny, tmp_path, change, kept):
    jobs = [job for job in jobs_of(tiny, tmp_path, change) if job.spec.name == "evaluate"]
    assert {getattr(job.config, change.split(".")[1].split("=")[0]) for job in jobs} == {kept}


def test_steps_that_lie_before_the_first_are_refused(tiny, tmp_path):
    jobs = jobs_of(tiny, tmp_path)
    with pytest.raises(ConfigError, match="none of that comes after --from 'evaluate one'"):
        chosen(jobs, "pack", "evaluate one")


def test_an_evaluation_keeps_whether_it_measured_the_baselines(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr("viewkit.cli.chain.baselines_of", lambda dataset, name: {"runs/two/eval": True}.get(name))
    jobs = {job.name: job.config.baselines for job in jobs_of(tiny, tmp_path) if job.spec.name == "evaluate"}
    assert jobs == {"evaluate one": True, "evaluate two": True}
    monkeypatch.setattr("viewkit.cli.chain.baselines_of", lambda dataset, name: {"runs/one/eval": False}.get(name))
    jobs = {job.name: job.config.baselines for job in jobs_of(tiny, tmp_path) if job.spec.name == "evaluate"}
    assert jobs == {"evaluate one": False, "evaluate two": False}


@pytest.mark.parametrize("text", [EXPERIMENT, COMPARISON])
def test_probes_on_images_that_are_packed_without_labels_are_refused_at_once(text, tmp_path, capsys):
    (tmp_path / "tiny.toml").write_text(text)
    images = photographs(tmp_path / "images")
    line = [
        "run",
        str(tmp_path / "tiny.toml"),
        str(images),
        str(tmp_path / "data"),
        "--test",
        str(images),
        "--set",
        "pack.labels=none",
    ]
    assert run(line) == 2
    said = capsys.readouterr().err
    assert "packed from" in said and "--set pack.labels=folders" in said and not (tmp_path / "data").exists()


def test_arms_that_are_no_comparison_are_refused_before_a_chain_begins(tmp_path, capsys):
    path, images = tmp_path / "tiny.toml", photographs(tmp_path / "images")
    path.write_text(COMPARISON.replace("joint_area = 0.0", "policy = 'moco_v2'"))
    assert run(["run", str(path), str(images), str(tmp_path / "data"), "--test", str(images)]) == 2
    assert "follow different specifications" in capsys.readouterr().err and not (tmp_path / "data").exists()


def test_the_experiment_on_the_page_of_compare_can_be_run(tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "compare.md").read_text()
    (tmp_path / "mine.toml").write_text(page.partition("```toml\n")[2].partition("```")[0])
    images = photographs(tmp_path / "images")
    jobs = checked_jobs(load_experiment(str(tmp_path / "mine.toml")), str(images), tmp_path / "data", str(images))
    assert [job.name for job, _ in jobs][-2:] == ["compare", "report"]


def test_labels_that_were_attached_since_are_good_enough(tiny, tmp_path):
    """A chain that packed images without labels, whose dataset got some by `viewkit label`, goes on."""
    images = photographs(tmp_path / "images")
    data = tmp_path / "data"
    changes = ["--set", "pack.labels=none", "--max-rejects", "1", "--device", "cpu"]
    assert run(["run", tiny, str(images), str(data), *changes, "--only", "pack"]) == 0
    assert run(["label", str(data), "--from", str(images)]) == 0
    checked_jobs(with_changes(load_experiment(tiny), ["pack.labels=none"]), str(images), data, str(images))


def test_a_rehearsal_has_the_run_of_a_chain_without_runs_and_its_options(tmp_path):
    path = tmp_path / "plain.toml"
    path.write_text(
        'title = "x"\n[pretrain]\nweights = "quality"\nbatch_size = 256\nencoder_weights = "w.safetensors"\n'
        '[evaluate]\nencoder = "open_clip:ViT-H-14/laion2b"\n[audit]\nencoder = "timm:vit_base_patch16_224"\n'
        '[generator]\nautoencoder_steps = 9\nautoencoder = "vae"\n'
    )
    small = rehearsal_of(load_experiment(str(path))).experiment
    options = small.run_options("default")
    assert options["batch_size"] == BATCH and options["weights"] == "quality" and "encoder_weights" not in options
    assert small.stages["evaluate"][0]["encoder"].endswith("/random")
    assert small.stages["audit"][0]["encoder"].endswith("/random")
    assert not {"autoencoder", "autoencoder_steps"} & set(small.stages["generator"][0])
    assert chain_of(small, "images", tmp_path / "d", tmp_path / "t", "test")

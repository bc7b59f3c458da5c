"""`viewkit init` sees what a source holds, says why it chooses what, and writes an experiment that runs as it is."""

import io
import re
import shutil
import tarfile
import tomllib

import numpy as np
import pytest
from jsonschema import Draft202012Validator
from PIL import Image
from tiny_chain import photographs

from viewkit.cli.chain import chain_of
from viewkit.cli.init import experiment_text
from viewkit.cli.main import run
from viewkit.cli.schema import schema_of
from viewkit.pipelines.experiments.advice import CPU_STEPS, Machine, length_for, size_for
from viewkit.pipelines.experiments.experiment import load_experiment
from viewkit.pipelines.experiments.look import Images, look_at

CPU, GPU = Machine("cpu"), Machine("cuda:0", 80.0)


def images(folder, names, side_px=24):
    for place, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (side_px + place, side_px), (place, 0, 0)).save(path)
    return str(folder)


def found(count=1000, side=300, **other):
    return Images(count=count, looked_at=min(count, 512), unusable=0, sides=(side, side, side), **other)


def test_folders_are_classes_and_broken_or_tiny_images_are_counted(tmp_path):
    seen = look_at(str(photographs(tmp_path)))
    assert (seen.count, seen.looked_at, seen.unusable, seen.usable) == (26, 26, 2, 24)
    assert (seen.sides, seen.labels, seen.classes) == ((40, 40, 40), "folders", 3)
    images(tmp_path, ["class0/tiny.png"], side_px=9)
    assert look_at(str(tmp_path)).unusable == 3


def test_folders_named_like_splits_and_images_beside_folders_are_no_classes(tmp_path):
    split = look_at(images(tmp_path / "a", [f"{part}/cat/{i}.png" for part in ("train", "val") for i in range(4)]))
    assert (split.labels, split.classes, split.splits) == ("none", 0, ("train", "val"))
    beside = look_at(images(tmp_path / "b", [*(f"{name}/{i}.png" for name in "xy" for i in range(4)), "one.png"]))
    assert (beside.labels, beside.classes, beside.beside) == ("none", 0, 1)
    single = look_at(images(tmp_path / "c", [f"{i}/photo.png" for i in range(9)]))
    assert (single.labels, single.classes) == ("none", 0)


def test_a_zip_is_looked_at_as_its_folder_is(tmp_path):
    images(tmp_path / "in", [f"{'abc'[place % 3]}/{place}.png" for place in range(12)])
    shutil.make_archive(str(tmp_path / "a"), "zip", tmp_path, "in")
    assert look_at(str(tmp_path / "a.zip")) == look_at(str(tmp_path / "in"))
    assert look_at(str(tmp_path / "a.zip")).classes == 3


def test_tars_and_the_demo_bring_their_own_labels(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for i in range(6):
            stream = io.BytesIO()
            Image.new("RGB", (20 + 2 * i, 100)).save(stream, "PNG")
            for name, data in ((f"{i}.png", stream.getvalue()), (f"{i}.cls", b"%d" % (i % 2))):
                member = tarfile.TarInfo(name)
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    seen = look_at(str(tmp_path))
    assert (seen.count, seen.classes, seen.labels, seen.sides) == (6, 2, "none", (21, 25, 29))
    assert seen.splits == ()
    shutil.copy(tmp_path / "a.tar", tmp_path / "train-0.tar")
    (tmp_path / "a.tar").rename(tmp_path / "val.tar")
    assert look_at(str(tmp_path)).splits == ("train", "val") and look_at(str(tmp_path)).count == 12
    demo = look_at("demo:train")
    assert (demo.count, demo.looked_at, demo.sides[1], demo.classes) == (1896, 512, 64, 16)


@pytest.mark.parametrize(
    ("seen", "machine", "preset", "arch"),
    [
        (found(10**6), CPU, "pico-32", "vit_pico_patch8"),
        (found(10**6), GPU, "vit-s16-224", "resnet50"),
        (found(10**6), Machine("cuda:0", 8.0), "small-96", "resnet18_cifar"),
        (found(1000), GPU, "tiny-64", "resnet18_cifar"),
        (found(10**6, side=32), GPU, "pico-32", "resnet18_cifar"),
    ],
)
def test_the_size_fits_images_and_machine(seen, machine, preset, arch):
    size = size_for(seen, machine)
    assert (size.preset, size.arch) == (preset, arch)
    assert size.side_px <= max(32, seen.sides[1])


def test_a_training_on_a_cpu_is_short_and_a_batch_never_more_than_a_quarter():
    short, long = (length_for(found(1000), each, batch_size=128, epochs=100) for each in (CPU, GPU))
    assert (short.batch_size, short.steps) == (128, CPU_STEPS) and short.passes == pytest.approx(CPU_STEPS / 7)
    assert (long.steps, long.epochs) == (None, 100)
    few = length_for(found(20), GPU, batch_size=128, epochs=3)
    assert (few.batch_size, few.epochs, few.steps) == (4, 3, None)


@pytest.mark.parametrize("machine", [CPU, Machine("cuda:0", 8.0), GPU], ids=["cpu", "small", "large"])
@pytest.mark.parametrize(
    "seen",
    [
        found(8, 16),
        found(1000, 40, labels="folders", classes=3),
        found(50_000, 100, splits=("test", "train")),
        found(200_000, 400, classes=1000),
        found(900, 70, beside=4),
    ],
    ids=["few", "classes", "splits", "many", "beside"],
)
@pytest.mark.parametrize("test", [None, "other images"])
def test_what_is_written_is_an_experiment_that_the_command_and_the_schema_take(tmp_path, seen, machine, test):
    path = tmp_path / "mine.toml"
    path.write_text(experiment_text("my images", path, test, seen, machine))
    jobs = chain_of(load_experiment(str(path)), "images", tmp_path / "d", tmp_path / "t", test)
    names = ["pack", "estimator", "histograms", "score", "pretrain random", "pretrain vs2fi", "report"]
    assert [job.name for job in jobs if job.name.split()[-1] != "test" and job.spec.name != "evaluate"] == names
    assert ("evaluate vs2fi" in {job.name for job in jobs}) == (test is not None)
    assert Draft202012Validator(schema_of("experiment")).is_valid(tomllib.loads(path.read_text()))


def test_every_choice_stands_below_its_reason_and_what_is_off_can_be_switched_on(tmp_path):
    text = experiment_text("x", tmp_path / "x.toml", None, found(1000, 40, labels="folders", classes=3), CPU)
    body = text.partition("\n[pack]")[2].splitlines()
    bare = [line for above, line in zip(["", *body], body, strict=False)
            if re.match(r"[a-z]\w* = ", line) and not above.startswith("# ")]  # fmt: skip
    assert bare == []
    switched = re.sub(r"^# (\[[\w.]+\]|\w+ = .*)$", r"\1", text, flags=re.MULTILINE)
    (tmp_path / "all.toml").write_text(switched)
    found_all = load_experiment(str(tmp_path / "all.toml"))
    assert {"generate", "evaluate"} <= set(found_all.stages) and set(found_all.runs) == {"random", "vs2fi", "stored"}
    chain_of(found_all, "images", tmp_path / "d", tmp_path / "t", "test")


def test_the_command_says_what_it_saw_and_what_comes_next_and_overwrites_nothing(tmp_path, capsys):
    source, out = str(photographs(tmp_path / "my images")), tmp_path / "mine.toml"
    line = ["init", source, str(out), "--device", "cpu"]
    assert run(line) == 0
    said = capsys.readouterr().out
    assert "26 images, shorter sides 40 px, 3 classes, 2 of 26 cannot be used; for a CPU" in said
    assert f"viewkit run {out} '{source}' dataset --rehearse" in said
    assert f"viewkit run {out} '{source}' dataset --max-rejects 0.12\n" in said  # half as many again as 2 of 26
    labelled = [*line[:2], str(tmp_path / "tested.toml"), *line[3:], "--test", source]
    assert run(labelled) == 0 and f"--test '{source}' --max-rejects 0.12 --dry-run" in capsys.readouterr().out
    assert "\n[evaluate]\n" in (tmp_path / "tested.toml").read_text()
    parts = images(tmp_path / "parts", [f"{part}/{i}.png" for part in ("train", "test") for i in range(6)])
    assert run(["init", parts, str(tmp_path / "parts.toml"), "--device", "cpu"]) == 0
    assert "note: test, train are parts of a dataset" in capsys.readouterr().out
    before = out.read_bytes()
    assert run(line) == 3
    error = capsys.readouterr().err
    assert "is there already" in error and error.count("\n") == 1 and out.read_bytes() == before


def test_a_source_without_images_is_one_line_and_leaves_no_file(tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    images(tmp_path / "few", ["a.png", "b.png"])
    out = tmp_path / "mine.toml"
    for source, code, says in (
        ("empty", 1, "is empty"),
        ("few", 1, "has 2 images, of which about 2 can be used"),
        ("nowhere", 1, "does not exist"),
    ):
        assert run(["init", str(tmp_path / source), str(out), "--device", "cpu"]) == code
        error = capsys.readouterr().err
        assert says in error and error.count("\n") == 1 and not out.exists()
    assert run(["init", str(tmp_path / "few"), str(tmp_path / "mine.txt")]) == 2
    many = images(tmp_path / "many", [f"{i}.png" for i in range(9)])
    assert run(["init", many, str(tmp_path / "nowhere" / "mine.toml"), "--device", "cpu"]) == 1
    assert "no such file or folder" in capsys.readouterr().err
    assert run(["init", many, str(out), "--device", "cpu", "--test", many]) == 1
    error = capsys.readouterr().err
    assert "has no labels" in error and error.count("\n") == 1 and not out.exists()
    assert run(["init", "demo:train", str(out), "--device", "cuda:99"]) == 2
    assert "this machine has" in capsys.readouterr().err


@pytest.mark.slow
def test_the_file_rehearses_and_runs_as_it_is(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows, columns = np.mgrid[0:40, 0:40] / 40
    generator = np.random.default_rng(0)
    for place in range(72):
        wave = np.sin(2 * np.pi * (generator.uniform(1, 3) * rows + generator.uniform(1, 3) * columns))[..., None]
        pixels = 127 + 60 * wave * generator.uniform(-1, 1, 3) + generator.normal(0, 8, (40, 40, 3))
        path = tmp_path / "photos" / f"class{place % 2}" / f"{place}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(path)
    assert run(["init", "photos", "mine.toml", "--device", "cpu"]) == 0
    common = ["run", "mine.toml", "photos", "dataset", "--device", "cpu"]
    assert run([*common, "--rehearse"]) == 0
    assert "the rehearsal of 'mine' went through: 7 steps" in capsys.readouterr().out
    fewer = ["--set", "estimator.epochs=2", "--set", "pretrain.epochs=2"]  # the file's own, but for the time it takes
    assert run([*common, *fewer, "--workers", "1"]) == 0
    assert "The page: dataset/report/index.html" in capsys.readouterr().out

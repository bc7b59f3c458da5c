"""Weights by hub id and commit: found in the local cache, fetched once, refused with one line. No network."""

import shutil
from fnmatch import fnmatch
from pathlib import Path

import pytest
from huggingface_hub.errors import LocalEntryNotFoundError

from viewkit.pipelines.weights import hub
from viewkit.pipelines.weights.hub import HALF, PLAIN, local_folder
from viewkit.shards.errors import ConfigError, DataError

COMMIT = "0123456789abcdef0123456789abcdef01234567"
ID = f"someone/unclip@{COMMIT}"


@pytest.fixture
def calls(monkeypatch, tmp_path):
    """A hub that holds `tmp_path/remote` and caches into `tmp_path/cache`; the calls it got."""
    import huggingface_hub

    seen = []

    def snapshot(repository, *, revision, allow_patterns, local_files_only):
        seen.append((tuple(allow_patterns), local_files_only))
        cache = tmp_path / "cache" / repository.replace("/", "--") / revision
        if local_files_only:
            if not cache.is_dir():
                raise LocalEntryNotFoundError("not in the cache\nsecond line")
            return str(cache)
        if not (tmp_path / "remote").is_dir():
            raise LocalEntryNotFoundError("Got: ConnectError\nsecond line")
        cache.mkdir(parents=True, exist_ok=True)
        for file in (tmp_path / "remote").rglob("*.*"):
            name = file.relative_to(tmp_path / "remote")
            if any(fnmatch(name.as_posix(), pattern) for pattern in allow_patterns):
                (cache / name).parent.mkdir(exist_ok=True)
                shutil.copy(file, cache / name)
        return str(cache)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    return seen


def publish(path, *files):
    for name in files:
        (path / "remote" / name).parent.mkdir(parents=True, exist_ok=True)
        (path / "remote" / name).write_text(name)


def test_a_folder_is_taken_as_it_is(calls, tmp_path):
    assert local_folder(tmp_path) == tmp_path
    assert calls == []


def test_a_pinned_id_is_fetched_once_and_then_found_without_the_hub(calls, tmp_path):
    publish(tmp_path, "unet/diffusion_pytorch_model.safetensors", "unet/config.json", "unet/weights.bin", "run.py")
    folder = local_folder(Path(ID))
    assert sorted(file.name for file in folder.rglob("*") if file.is_file()) == [
        "config.json",
        "diffusion_pytorch_model.safetensors",
    ]
    assert calls == [(PLAIN, True), (HALF, True), (PLAIN, False)]
    calls.clear()
    shutil.rmtree(tmp_path / "remote")
    assert local_folder(Path(ID)) == folder
    assert calls == [(PLAIN, True)]


def test_half_precision_files_are_fetched_where_there_are_no_others(calls, tmp_path):
    publish(tmp_path, "unet/diffusion_pytorch_model.fp16.safetensors")
    folder = local_folder(Path(ID))
    assert (folder / "unet" / "diffusion_pytorch_model.fp16.safetensors").is_file()
    assert calls[-1] == (HALF, False)


def test_a_cut_download_is_fetched_to_its_end(calls, tmp_path):
    cut = tmp_path / "cache" / "someone--unclip" / COMMIT / "unet"
    cut.mkdir(parents=True)
    (cut / "diffusion_pytorch_model.safetensors").write_text("whole")
    publish(tmp_path, "unet/diffusion_pytorch_model.safetensors", "vae/diffusion_pytorch_model.safetensors")
    folder = local_folder(Path(ID), ("unet", "vae"))
    assert (folder / "vae" / "diffusion_pytorch_model.safetensors").is_file()
    assert calls[-1] == (PLAIN, False)


def test_an_id_that_cannot_be_fetched_says_what_to_do(calls, tmp_path):
    with pytest.raises(
        DataError, match=r"someone/unclip@0123456789ab\.\.\.: cannot be fetched \(Got: ConnectError\)"
    ) as e:
        local_folder(Path(ID))
    assert "download it once" in str(e.value)
    assert "\n" not in str(e.value)


@pytest.mark.parametrize("revision", ["main", "0123456", "refs/pr/1", COMMIT.upper(), ""])
def test_anything_but_a_whole_commit_is_refused(calls, tmp_path, revision):
    with pytest.raises(ConfigError, match="pinned to a commit"):
        local_folder(Path(f"someone/unclip@{revision}"))
    assert calls == []


@pytest.mark.parametrize("name", ["someone/unclip", "no/such/folder", "nothing"])
def test_a_folder_that_is_not_there_is_one_clear_line(calls, tmp_path, name, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=f"{name}: there is no such folder; --weights takes .* org/name@COMMIT"):
        local_folder(Path(name))
    assert calls == []


def test_what_is_fetched_holds_neither_pickles_nor_code():
    assert {pattern.rpartition(".")[2] for pattern in (*PLAIN, *HALF)} == {"json", "txt", "safetensors"}
    assert hub.PINNED.fullmatch(ID).groups() == ("someone/unclip", COMMIT)

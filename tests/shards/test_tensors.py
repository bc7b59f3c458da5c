"""Files of tensors are checked without torch, also those of a training that is not finished."""

import pytest
import torch
from small_datasets import CPU, numbers_dataset
from toy_stages import TotalConfig, TotalStage

from viewkit.pipelines.engine.run import run_stage
from viewkit.pipelines.models.checkpoint import save_tensors
from viewkit.shards.errors import DataError
from viewkit.shards.tensors import check_tensors
from viewkit.shards.verify import verify


def tensors():
    kinds = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool)
    named = {f"kind{place}": torch.arange(6).reshape(2, 3).to(kind) for place, kind in enumerate(kinds)}
    return {**named, "empty": torch.zeros(0, 4), "scalar": torch.tensor(3.0)}


def test_a_file_that_save_tensors_wrote_is_intact(tmp_path):
    save_tensors(tmp_path / "a.safetensors", tensors(), {"step": 12, "text": "ä"})
    assert check_tensors(tmp_path / "a.safetensors") == (tmp_path / "a.safetensors").stat().st_size


def test_every_flipped_bit_and_every_cut_is_found(tmp_path):
    path = tmp_path / "a.safetensors"
    save_tensors(path, {"weight": torch.arange(3.0), "count": torch.tensor([1])}, {"step": 1})
    raw = path.read_bytes()
    for place in range(len(raw)):
        path.write_bytes(raw[:place] + bytes([raw[place] ^ 1 << place % 8]) + raw[place + 1 :])
        with pytest.raises(DataError, match="damaged, its tensors do not match its checksum"):
            check_tensors(path)
    for end in (*range(0, len(raw), 7), len(raw) - 1):
        path.write_bytes(raw[:end])
        with pytest.raises(DataError, match="damaged"):
            check_tensors(path)
    path.write_bytes(raw + b"x")
    with pytest.raises(DataError, match="damaged"):
        check_tensors(path)


def test_a_flipped_checkpoint_of_an_unfinished_run_is_found_by_verify(tmp_path):
    dataset = numbers_dataset(tmp_path)
    run_stage(TotalStage(), TotalConfig(), dataset, CPU)
    (tmp_path / "total" / "receipt.json").unlink()
    path = tmp_path / "total" / "checkpoint" / "last.safetensors"
    save_tensors(path, tensors(), {"step": 12})
    assert not [each.problem for each in verify(dataset) if each.problem]
    raw = bytearray(path.read_bytes())
    raw[-20] ^= 4
    path.write_bytes(raw)
    problems = [each.problem for each in verify(dataset) if each.problem]
    assert len(problems) == 1 and "last.safetensors: damaged" in problems[0] and "to start over" in problems[0]

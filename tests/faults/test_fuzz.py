"""Everything that reads: whatever it is given, an error meant for people or a result, within bounds on time and memory.

Documents are given valid seals here: the seal finds damage, not forgery (SECURITY.md).
"""

import contextlib
import io
import json
import struct
import time

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_datasets import numbers_dataset

from viewkit.cli.main import run
from viewkit.cli.options import read_toml
from viewkit.pipelines.generate.generators.unclip import UnclipFolder
from viewkit.pipelines.generate.levels import LevelTable
from viewkit.pipelines.models.checkpoint import load_tensors
from viewkit.pipelines.training.metrics import read_metrics
from viewkit.pipelines.views.policies import load_policy
from viewkit.shards.codecs import decode_image, decode_json, decode_npy, image_size
from viewkit.shards.dataset import Dataset
from viewkit.shards.document import render
from viewkit.shards.errors import ViewkitError
from viewkit.shards.verify import verify

MAX_S = 5.0
JSON = st.recursive(
    # NaN and infinity have no rendering: no document can hold them.
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
FUZZ = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


@contextlib.contextmanager
def bounded():
    """Inside, only errors that are meant for people may be raised, and not much time may pass."""
    started = time.monotonic()
    with contextlib.suppress(ViewkitError):
        yield
    assert time.monotonic() - started < MAX_S


@pytest.fixture
def dataset(tmp_path):
    return numbers_dataset(tmp_path / "data", rows=6, rows_per_shard=3)


def everything(path):
    """All that reads a dataset without running a stage."""
    found = Dataset(path)
    with bounded():
        list(verify(found))
    for name in found.columns():
        with bounded():
            column = found.column(name)
            column.complete_shards()
            for place in range(column.num_rows):
                column.row(place)
        with bounded():
            found.input_digest(name, "fuzz")
    for name in found.artifacts():
        with bounded():
            artifact = found.artifact(name)
            assert artifact.digest or artifact.numbers is not None


@FUZZ
@given(field=st.sampled_from(["stage", "version", "config", "inputs", "plan", "identity", "software"]), value=JSON)
def test_a_sealed_identity_with_any_value_in_any_field_is_an_error_or_a_result(dataset, field, value):
    (path,) = dataset.path.glob("*/column.json")
    before = path.read_bytes()
    content = {k: v for k, v in json.loads(before).items() if k not in ("seal", "format")}
    try:
        path.write_bytes(render({**content, field: value}))
        everything(dataset.path)
    finally:
        path.write_bytes(before)


@FUZZ
@given(field=st.sampled_from(["column", "shard", "identity", "bytes", "sha256", "rows", "rejects"]), value=JSON)
def test_a_sealed_receipt_with_any_value_in_any_field_is_an_error_or_a_result(dataset, field, value):
    path = sorted(dataset.path.glob("*/000000.json"))[0]
    before = path.read_bytes()
    content = {k: v for k, v in json.loads(before).items() if k not in ("seal", "format")}
    try:
        path.write_bytes(render({**content, field: value}))
        everything(dataset.path)
    finally:
        path.write_bytes(before)


@FUZZ
@given(lost=st.sets(st.sampled_from(["column", "shard", "identity", "bytes", "sha256", "rows", "rejects"]), min_size=1))
def test_a_sealed_receipt_without_some_of_its_fields_is_an_error(dataset, lost):
    path = sorted(dataset.path.glob("*/000000.json"))[0]
    before = path.read_bytes()
    content = {k: v for k, v in json.loads(before).items() if k not in {"seal", "format", *lost}}
    path.write_bytes(render(content))
    try:
        everything(dataset.path)
    finally:
        path.write_bytes(before)


@pytest.mark.parametrize("shards", [10**12, -1, 2**70, True, None, "3", [], 1.5])
def test_a_plan_of_absurd_size_ends_at_once(dataset, shards, capsys):
    (path,) = dataset.path.glob("*/column.json")
    content = {k: v for k, v in json.loads(path.read_bytes()).items() if k not in ("seal", "format")}
    path.write_bytes(render({**content, "plan": {"shards": shards, "rows": 6}}))
    started = time.monotonic()
    assert run(["status", str(dataset.path)]) == 1
    assert time.monotonic() - started < MAX_S
    assert "damaged" in capsys.readouterr().err


@FUZZ
@given(data=st.binary(max_size=400))
def test_bytes_that_are_anything_decode_or_are_refused(data):
    for read in (decode_npy, decode_json, image_size):
        with bounded():
            read(data)
    for extension in ("jpg", "png", "webp"):
        with bounded():
            decode_image({extension: data})


@FUZZ
@given(
    shape=st.lists(st.integers(-3, 2**62), max_size=5), kind=st.sampled_from(["<f4", "<i8", "|O", "|V8", "<U3", "x"])
)
def test_a_npy_header_of_any_shape_allocates_nothing_it_has_not_got(shape, kind):
    stream = io.BytesIO()
    header = repr({"descr": kind, "fortran_order": False, "shape": tuple(shape)}).encode()
    stream.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + bytes(16))
    with bounded():
        array = decode_npy(stream.getvalue())
        assert array.nbytes <= 16 and isinstance(array, np.ndarray)


@FUZZ
@given(text=st.text(max_size=80) | st.integers(1, 4000).map(lambda n: "a = " + "[" * n) | st.just("a = 1" + "0" * 5000))
def test_any_text_as_a_config_file_or_a_policy_is_an_error_or_a_result(tmp_path_factory, text):
    folder = tmp_path_factory.mktemp("toml")
    path = folder / "file.toml"
    path.write_text(text, encoding="utf-8", errors="replace")
    with bounded():
        read_toml(path, "pack", {"seed"}, ["pack"])
    with bounded():
        load_policy(str(path))


@FUZZ
@given(
    header=st.sampled_from(["share,level", "key,level", ""]),
    lines=st.lists(st.text("0123456789.,e+-/ \"'k", max_size=24), max_size=5),
    share=st.sampled_from(["0", "1e400000000", "1e-400000000", "1/0", "9" * 5000, "0.5"]),
)
def test_any_table_of_levels_is_an_error_or_a_result(tmp_path_factory, header, lines, share):
    path = tmp_path_factory.mktemp("csv") / "levels.csv"
    path.write_text("\n".join([header, f"{share},100", *lines]))
    with bounded():
        table = LevelTable.read(path)
        table.check_keys(["k"])
        assert 0 <= table.level("k", 1, 2) <= 999


@FUZZ
@given(header=JSON, tail=st.binary(max_size=64), size=st.integers(0, 2**63 - 1) | st.none())
def test_any_safetensors_header_is_an_error_or_a_result(tmp_path_factory, header, tail, size):
    text = json.dumps(header).encode()
    path = tmp_path_factory.mktemp("tensors") / "file.safetensors"
    path.write_bytes(struct.pack("<Q", len(text) if size is None else size) + text + tail)
    with bounded():
        load_tensors(path)


@FUZZ
@given(content=JSON, name=st.sampled_from(["model_index.json", "unet/config.json", "image_encoder/config.json"]))
def test_any_settings_in_a_folder_of_weights_are_an_error_or_a_result(tmp_path_factory, content, name):
    folder = tmp_path_factory.mktemp("weights")
    index = {"_class_name": "StableUnCLIPImg2ImgPipeline"}
    for part in ("unet", "image_encoder", "image_normalizer"):
        (folder / part).mkdir()
        (folder / part / "config.json").write_text("{}")
        (folder / part / "diffusion_pytorch_model.safetensors").write_bytes(b"")
        (folder / part / "model.safetensors").write_bytes(b"")
    (folder / "model_index.json").write_text(json.dumps(index))
    (folder / name).write_text(json.dumps(content))
    with bounded():
        UnclipFolder(folder, ("unet", "image_encoder", "image_normalizer"))


@FUZZ
@given(lines=st.lists(JSON.map(json.dumps) | st.text(max_size=20), max_size=4), torn=st.text(max_size=10))
def test_any_log_of_metrics_is_an_error_or_a_result(tmp_path_factory, lines, torn):
    path = tmp_path_factory.mktemp("metrics") / "metrics.jsonl"
    path.write_text("\n".join([*lines, torn]))
    with bounded():
        for line in read_metrics(path):
            assert isinstance(line["step"], int)


@pytest.mark.parametrize("part", ["9" * 5000 + "/" + "9" * 5001, "0/" + "9" * 5000, "1/0", "-1/2", "²/3"])
def test_any_part_is_an_error_of_one_line(tmp_path, part, capsys):
    assert run(["pack", str(tmp_path), str(tmp_path / "data"), "--part", part]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1

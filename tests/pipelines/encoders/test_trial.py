"""The trial: an encoder from outside is its file and one line of the table, and every command then knows its name."""

import pytest
from small_datasets import CPU
from typer.testing import CliRunner
from vs2fi_world import make_images

from viewkit.cli.main import app
from viewkit.pipelines.encoders.names import ENCODERS, EncoderCard
from viewkit.pipelines.engine.run import run_stage
from viewkit.pipelines.foreground.artifact import Foreground
from viewkit.pipelines.generate.fidelity_config import FidelityConfig
from viewkit.pipelines.generate.fidelity_stage import FidelityStage
from viewkit.shards.codecs import decode_json
from viewkit.shards.dataset import Dataset


@pytest.fixture
def toy(monkeypatch):
    monkeypatch.setitem(ENCODERS, "toy:", EncoderCard("toy_encoder:open_toy", "toy:SIDE", "none"))


def run(*arguments):
    result = CliRunner().invoke(app, [str(each) for each in arguments])
    assert result.exit_code == 0, result.output
    return result


def test_an_encoder_is_its_file_and_one_line_of_the_table(toy, tmp_path):
    dataset = make_images(tmp_path / "d", count=14)
    options = (dataset.path, "--encoder", "toy:32", "--sample", 12, "--device", "cpu")
    run("foreground", *options)
    foreground = Foreground.read(Dataset(dataset.path).artifact("foreground"))
    assert foreground.encoder["encoder"] == "toy:32" and len(foreground.direction) == 3
    run("generate", *options, "--sign", "+", "--generator", "retrieval", "--workers", 1)
    made = Dataset(dataset.path).column("genview")
    assert made.num_rows == 14 and decode_json(made.fields(0)["json"])["generator"] == "retrieval"
    numbers = run_stage(FidelityStage(), FidelityConfig(encoder="toy:32"), Dataset(dataset.path), CPU).numbers
    assert -1 <= numbers["cosine"] <= 1 and numbers["images"] == 14


def test_without_its_line_the_name_is_refused(tmp_path):
    result = CliRunner().invoke(app, ["foreground", str(tmp_path), "--encoder", "toy:32"])
    assert isinstance(result.exception, Exception) and "encoder is 'toy:32'; it must be" in str(result.exception)

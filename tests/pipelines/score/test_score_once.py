"""What scoring does not do twice, and what it does not keep."""

import subprocess
import sys
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch
from vs2fi_world import make_estimator, make_genview, make_images

from viewkit.pipelines.engine import rejects
from viewkit.pipelines.engine.contract import Run
from viewkit.pipelines.engine.execution import Execution
from viewkit.pipelines.engine.run import run_stage
from viewkit.pipelines.histograms.config import HistogramsConfig
from viewkit.pipelines.histograms.stage import HistogramsStage
from viewkit.pipelines.models.estimator import Estimator
from viewkit.pipelines.pairs.column import SIMILARITIES
from viewkit.pipelines.score import stage as score_stage
from viewkit.pipelines.score.config import ScoreConfig
from viewkit.pipelines.score.stage import ScoreStage
from viewkit.pipelines.vs2fi import embeddings
from viewkit.pipelines.vs2fi.embeddings import ROWS_PER_BATCH
from viewkit.shards.codecs import decode_npy
from viewkit.shards.row import Row

MISSING = ("row0002", "row0011")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    dataset = make_images(tmp_path_factory.mktemp("once") / "d")
    make_estimator(dataset)
    run_stage(HistogramsStage(), HistogramsConfig(negatives=9, images=20), dataset, Execution(device="cpu"))
    make_genview(dataset, missing=MISSING)
    return dataset


def prepared(dataset, config, device="cpu"):
    stage = ScoreStage()
    return stage.prepare(config, Run(dataset, dataset.path / "elsewhere", stage.name, device=device))


def first_shard(dataset, config, device="cpu"):
    return list(prepared(dataset, config, device)(ScoreStage().sources(config, dataset).rows(0)))


@pytest.mark.parametrize(
    ("source", "decoded"), [("original", 16), ("generated", 2 * 14), ("mixed", 16 + 14)], ids=lambda value: str(value)
)
def test_every_image_is_decoded_once_and_every_view_rendered_and_embedded_once(dataset, monkeypatch, source, decoded):
    """3 rounds of 4 views of a shard of 16 rows, of which 2 have no generated image."""
    decodes, rendered, embedded = [], [], []
    decode, render, embed = rejects.decode_image, embeddings.render, Estimator.embed

    def counted_render(images, recipes, index, **options):
        assert all(image.device == torch.device("cpu") for image in images)
        rendered.extend(recipes.tolist())
        return render(images, recipes, index, **options)

    def counted_embed(self, views):
        embedded.append(len(views))
        return embed(self, views)

    monkeypatch.setattr(rejects, "decode_image", lambda fields: decodes.append(1) or decode(fields))
    monkeypatch.setattr(embeddings, "render", counted_render)
    monkeypatch.setattr(Estimator, "embed", counted_embed)
    outcomes = first_shard(dataset, ScoreConfig(rounds=3, num_views=4, candidates=source))
    rows = [outcome for outcome in outcomes if isinstance(outcome, Row)]
    assert len(rows) == (14 if source == "generated" else 16)
    assert len(decodes) == decoded
    stored = np.concatenate([decode_npy(row.fields["recipes.npy"]).reshape(12, -1) for row in rows])
    assert sorted(rendered) == sorted(stored.tolist())
    assert embedded == [ROWS_PER_BATCH * 4] * 3  # one pass a round, filled up to a whole batch


def stream(fields, count):
    return (Row(f"row{number:06d}", fields) for number in range(count))


def test_the_images_of_two_batches_are_alive_at_most_however_many_rows_there_are(dataset, monkeypatch):
    alive, most = [0], [0]
    decode = score_stage.decode_or_reject

    def watched(key, fields):
        image = decode(key, fields)
        alive[0] += 1
        most[0] = max(most[0], alive[0])
        weakref.finalize(image, lambda: alive.__setitem__(0, alive[0] - 1))
        return image

    monkeypatch.setattr(score_stage, "decode_or_reject", watched)
    score = prepared(dataset, ScoreConfig(rounds=1, num_views=2))
    fields = dataset.column("images").fields(0)
    assert sum(isinstance(row, Row) for row in score(stream(fields, 6 * ROWS_PER_BATCH))) == 6 * ROWS_PER_BATCH
    assert ROWS_PER_BATCH <= most[0] <= 2 * ROWS_PER_BATCH
    assert alive[0] == 0


PEAK_OF = """
import resource, sys
from pathlib import Path
import numpy as np
import torch
torch.set_num_threads(1)
from viewkit.pipelines.score.config import ScoreConfig
from viewkit.pipelines.score.stage import ScoreStage
from viewkit.pipelines.engine.contract import Run
from viewkit.shards.codecs import encode_jpeg
from viewkit.shards.dataset import Dataset
from viewkit.shards.row import Row

dataset, rows = Dataset(Path(sys.argv[1])), int(sys.argv[2])
corners = np.random.default_rng(0).integers(0, 256, (10, 10, 3), dtype=np.uint8)
jpeg = encode_jpeg(corners.repeat(60, axis=0).repeat(60, axis=1), quality=90)
score = ScoreStage().prepare(ScoreConfig(rounds=1, num_views=2), Run(dataset, dataset.path / "elsewhere", "score"))
for _ in score(Row(f"row{number:06d}", {"jpg": jpeg}) for number in range(rows)):
    pass
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


@pytest.mark.slow
def test_peak_memory_does_not_grow_with_the_number_of_rows(dataset):
    """Images of 600 x 600 pixels, 1.1 MB decoded: four times the rows would take 311 MB more."""

    def peak_mb(rows):
        command = [sys.executable, "-c", PEAK_OF, str(dataset.path), str(rows)]
        return int(subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path.cwd()).stdout)

    few, many = peak_mb(3 * ROWS_PER_BATCH), peak_mb(12 * ROWS_PER_BATCH)
    assert many - few < 60


@pytest.mark.gpu
def test_scoring_on_a_gpu_gives_the_same_recipes_and_near_similarities(dataset):
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    config = ScoreConfig(rounds=1)
    for ours, theirs in zip(first_shard(dataset, config, "cuda"), first_shard(dataset, config), strict=True):
        assert ours.fields["recipes.npy"] == theirs.fields["recipes.npy"]
        near, exact = (decode_npy(row.fields["scores.npy"])[..., SIMILARITIES:] for row in (ours, theirs))
        np.testing.assert_allclose(near, exact, atol=5e-3)

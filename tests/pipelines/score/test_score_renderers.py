"""The compiled renderer in the pipelines: used without being asked for, noted, and harmless to the numbers."""

import numpy as np
import pytest
import torch
from vs2fi_world import make_estimator, make_images

from viewkit.pipelines.engine.execution import Execution
from viewkit.pipelines.engine.renderer import VARIABLE, find_library, renderer_name
from viewkit.pipelines.engine.run import run_stage
from viewkit.pipelines.histograms.config import HistogramsConfig
from viewkit.pipelines.histograms.stage import HistogramsStage
from viewkit.pipelines.pairs.column import SIMILARITIES
from viewkit.pipelines.pairs.samples import Sample
from viewkit.pipelines.pairs.scene import scene_of
from viewkit.pipelines.score.config import ScoreConfig
from viewkit.pipelines.score.stage import ScoreStage
from viewkit.pipelines.views.policies import load_policy
from viewkit.pipelines.views.recipe import neutral_recipes
from viewkit.pipelines.views.render import render as render_module
from viewkit.shards.codecs import decode_npy
from viewkit.shards.document import read_document

pytestmark = pytest.mark.slow

pytestmark = pytest.mark.skipif(isinstance(find_library(), str), reason=f"the compiled renderer: {find_library()}")
ON_CPU = Execution(device="cpu", workers=1)
SIMILARITY_TOLERANCE = 1e-4
"""Most that a stored similarity differs between the renderers."""


def scored(path, monkeypatch, renderer):
    monkeypatch.setenv(VARIABLE, renderer)
    dataset = make_images(path, count=40)
    make_estimator(dataset)
    run_stage(HistogramsStage(), HistogramsConfig(negatives=9, images=40), dataset, ON_CPU)
    run_stage(ScoreStage(), ScoreConfig(rounds=2), dataset, ON_CPU)
    return dataset


@pytest.mark.slow
def test_scores_of_both_renderers_are_of_the_same_recipes_and_agree(tmp_path, monkeypatch):
    by_torch, compiled = (scored(tmp_path / name, monkeypatch, name) for name in ("torch", "auto"))
    keys = list(by_torch.column("pairs").keys())
    for key in keys:
        there, here = (
            dataset.column("pairs").fields(dataset.column("pairs").place_of[key]) for dataset in (by_torch, compiled)
        )
        assert there["recipes.npy"] == here["recipes.npy"]
        gap = np.abs(decode_npy(there["scores.npy"]) - decode_npy(here["scores.npy"]))[..., SIMILARITIES:]
        assert gap.max() <= SIMILARITY_TOLERANCE


def test_the_renderer_is_noted_beside_the_identity_and_is_no_part_of_it(tmp_path, monkeypatch):
    by_torch, compiled = (scored(tmp_path / name, monkeypatch, name) for name in ("torch", "auto"))
    there, here = (read_document(each.path / "pairs" / "column.json", "") for each in (by_torch, compiled))
    assert there["software"]["cpu_renderer"] == "torch"
    assert here["software"]["cpu_renderer"] == renderer_name() != "torch"
    assert there["config"] == here["config"] and "cpu_renderer" not in str(here["config"])


def test_views_of_the_trainer_are_compiled_unless_torch_is_asked_for(monkeypatch):
    calls = []
    real = render_module.run_kernels
    monkeypatch.setattr(render_module, "run_kernels", lambda *a, **k: (calls.append(1), real(*a, **k))[1])
    policy = load_policy("cifar")
    image = torch.randint(0, 256, (40, 50, 3), dtype=torch.uint8)
    scene = scene_of([Sample("a", image)], neutral_recipes(2, 32)[None], policy, "cpu")
    monkeypatch.setenv(VARIABLE, "torch")
    by_torch = scene.render()
    assert not calls
    monkeypatch.delenv(VARIABLE)
    compiled = scene.render()
    assert calls
    assert all(torch.allclose(a, b, atol=1e-4) for a, b in zip(by_torch, compiled, strict=True))

"""What a view of generator `own` costs, against one pass of its network counted alone."""

import pytest
import torch
from reference.genview_worlds import CPU
from tiny_generator import TINY, plain_colours
from torch.utils.flop_counter import FlopCounterMode

from viewkit.pipelines.compare.sampling_cost import cost_of_own_view
from viewkit.pipelines.engine.run import run_stage
from viewkit.pipelines.generate.config import GenerateConfig
from viewkit.pipelines.generate.generators.networks import load_unet
from viewkit.pipelines.generate.own.network import open_own_folder
from viewkit.pipelines.generate.own.stage import GeneratorStage
from viewkit.pipelines.generate.stage import GenerateStage


@pytest.mark.slow
@pytest.mark.parametrize(("options", "passes"), [({"speed": "fast"}, 16), ({"steps": 3, "guidance": 1.0}, 3)])
def test_a_view_costs_the_passes_of_its_steps(tmp_path, options, passes):
    dataset = plain_colours(tmp_path / "data", 60)
    run_stage(GeneratorStage(), TINY, dataset, CPU)
    unet = load_unet(open_own_folder(dataset.path / "generator"), "fp32")
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        size = unet.config.projection_class_embeddings_input_dim
        unet(torch.zeros(1, 3, 32, 32), torch.tensor(1), None, class_labels=torch.zeros(1, size))
    config = GenerateConfig(generator="own", sign="+", **options)
    flops, seconds = cost_of_own_view(dataset, GenerateStage().settings(config), "cpu")
    assert flops == pytest.approx(passes * counter.get_total_flops(), rel=1e-6) and seconds > 0

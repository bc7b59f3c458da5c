"""What a view of generator `own` costs, against a generator that samples one."""

import pytest
import torch
from diffusers import AutoencoderKL, UNet2DConditionModel
from torch.utils.flop_counter import FlopCounterMode

from viewkit.pipelines.compare.sampling_cost import cost_of_own_view, num_passes
from viewkit.pipelines.generate.config import GenerateConfig
from viewkit.pipelines.generate.generators.sampling import Guidance
from viewkit.pipelines.generate.own.config import GeneratorConfig, resolve
from viewkit.pipelines.generate.own.network import create_unet
from viewkit.pipelines.generate.stage import GenerateStage


@pytest.mark.parametrize(
    ("options", "passes"),
    [({"speed": "fast"}, 16), ({"speed": "fastest"}, 8), ({"steps": 3, "guidance": 1.0}, 3), ({}, 40)],
)
def test_passes_are_those_that_the_loop_makes(options, passes):
    config = GenerateConfig(generator="own", sign="+", **options).decided()
    guidance = Guidance(config.guidance_scale, config.guidance_start, config.guidance_stop)
    assert passes == config.steps + sum(guidance.acts(step, config.steps) for step in range(config.steps))
    assert num_passes(GenerateStage().settings(config)) == passes


@pytest.mark.slow
@pytest.mark.parametrize("latent", [False, True])
def test_a_view_costs_its_passes_and_its_decoding(tmp_path, latent):
    settings = resolve(GeneratorConfig(preset="pico-32", width=16), "pico-32")
    shape = (4, 16, 16) if latent else (3, 32, 32)
    unet = create_unet(settings, 6, shape)
    assert isinstance(unet, UNet2DConditionModel)
    unet.save_pretrained(tmp_path / "unet", safe_serialization=True)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        unet(torch.zeros(1, *shape), torch.tensor(1), None, class_labels=torch.zeros(1, 12))
    expected = 3 * counter.get_total_flops()
    if latent:
        autoencoder = AutoencoderKL(latent_channels=4, block_out_channels=(8,), norm_num_groups=8)
        autoencoder.save_pretrained(tmp_path / "vae", safe_serialization=True)
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            autoencoder.decode(torch.zeros(1, *shape))
        expected += counter.get_total_flops()
    options = GenerateStage().settings(GenerateConfig(generator="own", sign="+", steps=3, guidance=1.0))
    flops, seconds = cost_of_own_view(tmp_path, options, "cpu")
    assert flops == pytest.approx(expected, rel=1e-3) and seconds > 0

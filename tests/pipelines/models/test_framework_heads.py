import torch
from torch import nn

from viewkit.pipelines.models.heads import (
    DINOHead,
    byol_head,
    expander,
    moco_v1_head,
    moco_v2_head,
    simclr_projector,
    swav_projector,
)

HIDDEN = ["Linear", "BatchNorm1d", "ReLU"]


def kinds(module):
    return [type(layer).__name__ for layer in module]


def widths(module):
    return [tuple(layer.weight.shape) for layer in module.modules() if isinstance(layer, nn.Linear)]


def test_heads_have_the_layers_and_widths_of_their_papers():
    assert isinstance(moco_v1_head(8, 4), nn.Linear)
    assert kinds(moco_v2_head(8, 16, 4)) == ["Linear", "ReLU", "Linear"]
    assert kinds(simclr_projector(8, 16, 4)) == [*HIDDEN, "Linear", "BatchNorm1d"]
    assert kinds(byol_head(8, 16, 4)) == kinds(swav_projector(8, 16, 4)) == [*HIDDEN, "Linear"]
    assert kinds(expander(8, 16, 4)) == [*HIDDEN, *HIDDEN, "Linear"]
    assert widths(expander(8, 16, 4)) == [(16, 8), (16, 16), (4, 16)]
    assert swav_projector(8, 16, 4)[-1].bias is not None and expander(8, 16, 4)[-1].bias is None


def test_dinos_head_ends_in_products_of_unit_vectors():
    head = DINOHead(8, 32, 6, 20)
    assert widths(head) == [(32, 8), (32, 32), (6, 32)] and head.last.weight.shape == (20, 6)
    z, logits = head(torch.randn(5, 8))
    torch.testing.assert_close(z.norm(dim=1), torch.ones(5))
    torch.testing.assert_close(logits, z @ nn.functional.normalize(head.last.weight, dim=1).T)
    assert all(not layer.bias.any() for layer in head.mlp if isinstance(layer, nn.Linear))

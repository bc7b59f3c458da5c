"""A torchvision detector with a feature pyramid on a backbone that viewkit has pretrained.

viewkit export DATASET/runs/NAME --to encoder.safetensors --names torchvision
python docs/examples/detection_fpn.py encoder.safetensors
"""

import json
import sys
from pathlib import Path

import torch
import torchvision
from safetensors.torch import load_file
from torchvision.models.detection import FasterRCNN
from torchvision.models.detection.backbone_utils import BackboneWithFPN


def pyramid(weights):
    """The four stages of the exported ResNet under a feature pyramid, and the facts of the encoder."""
    facts = json.loads(Path(weights).with_suffix(".json").read_text())
    if facts["stem"] is not None:
        raise SystemExit("the encoder has a stem for small images, whose strides a detector cannot use")
    network = torchvision.models.get_model(facts["torchvision_model"])
    lacking = network.load_state_dict(load_file(weights), strict=False)
    assert lacking.missing_keys == ["fc.weight", "fc.bias"] and not lacking.unexpected_keys
    network.eval()  # detectors keep the statistics of pretraining, or use torchvision's frozen batch norm
    widths = [network.get_submodule(f"layer{stage}")[-1] for stage in (1, 2, 3, 4)]
    channels = [(block.conv3 if hasattr(block, "conv3") else block.conv2).out_channels for block in widths]
    layers = {f"layer{stage}": str(stage - 1) for stage in (1, 2, 3, 4)}
    return BackboneWithFPN(network, layers, channels, out_channels=256), facts


def detector(weights, num_classes, side_px=(800, 1333)):
    """Faster R-CNN, whose inputs are normalised as in pretraining."""
    backbone, facts = pyramid(weights)
    return FasterRCNN(
        backbone, num_classes, min_size=side_px[0], max_size=side_px[1],
        image_mean=facts["mean"], image_std=facts["std"],
    )  # fmt: skip


if __name__ == "__main__":
    model = detector(sys.argv[1], num_classes=21).train()
    images = [torch.rand(3, 240, 320)]
    targets = [{"boxes": torch.tensor([[20.0, 30.0, 200.0, 180.0]]), "labels": torch.tensor([1])}]
    print({name: round(float(loss), 3) for name, loss in model(images, targets).items()})

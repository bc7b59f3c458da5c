"""Train lightly's SimCLR, its head and its loss, on viewkit's pairs.

python docs/examples/lightly_simclr.py DATASET [EPOCHS] [BATCH_SIZE]
"""

import sys

import torch
import torchvision
from lightly.loss import NTXentLoss
from lightly.models.modules import SimCLRProjectionHead

import viewkit


def train(dataset, epochs=10, batch_size=128, side_px=32):
    """The trained network."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    pairs = viewkit.load_pairs(
        viewkit.Dataset(dataset),
        policy="strengthened",
        side_px=side_px,
        batch_size=batch_size,
        select="vs2fi",
        device=device,
    )
    torch.manual_seed(0)
    backbone = torchvision.models.resnet18()
    backbone.fc = torch.nn.Identity()
    network = torch.nn.Sequential(backbone, SimCLRProjectionHead(512, 512, 128)).to(device)
    criterion = NTXentLoss(temperature=0.1)
    optimiser = torch.optim.AdamW(network.parameters(), lr=1e-3)
    for epoch in range(epochs):
        losses = []
        for batch in pairs.epoch(epoch):
            loss = criterion(network(batch.views1), network(batch.views2))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
        print(f"epoch {epoch}: loss {sum(losses) / len(losses):.3f}")
    return network


if __name__ == "__main__":
    train(sys.argv[1], *map(int, sys.argv[2:4]))

"""Train on viewkit's pairs through a webdataset pipeline, rendered in the workers of a DataLoader.

python docs/examples/webdataset_simclr.py DATASET [EPOCHS] [BATCH_SIZE] [WORKERS]
"""

import sys

import torch
import torchvision
import webdataset
from lightly.loss import NTXentLoss

import viewkit


def train(dataset, epochs=10, batch_size=128, workers=2, side_px=32):
    """The trained network."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    pairs = viewkit.webdataset(
        dataset, select="vs2fi", policy="strengthened", side_px=side_px, batch_size=batch_size, shuffle=1000
    )
    loader = webdataset.WebLoader(pairs, batch_size=None, num_workers=workers)
    torch.manual_seed(0)
    network = torchvision.models.resnet18(num_classes=128).to(device)
    criterion = NTXentLoss(temperature=0.1)
    optimiser = torch.optim.AdamW(network.parameters(), lr=1e-3)
    for epoch in range(epochs):
        pairs.set_epoch(epoch)  # workers are started anew for every epoch, so they have to be told
        losses = []
        for batch in loader:
            if len(batch["__key__"]) < 2:
                continue  # the last batch of a worker may be small, and one row has no negatives
            loss = criterion(network(batch["views1"].to(device)), network(batch["views2"].to(device)))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
        print(f"epoch {epoch}: loss {sum(losses) / len(losses):.3f}")
    return network


if __name__ == "__main__":
    train(sys.argv[1], *map(int, sys.argv[2:5]))

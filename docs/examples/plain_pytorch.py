"""Train a torchvision ResNet on viewkit's pairs in plain PyTorch.

python docs/examples/plain_pytorch.py DATASET [random|vs2fi|generated] [EPOCHS] [BATCH_SIZE]
"""

import sys

import torch
import torch.nn.functional as F
import torchvision

import viewkit

PAIRS = {
    "random": {},  # two random crops, sampled anew each epoch
    "vs2fi": {"select": "vs2fi"},  # pairs that `viewkit score` found neither false nor trivial
    "generated": {"alpha": 1.0},  # one of the two views is cropped from the image that `viewkit generate` made
}


def info_nce(z1, z2, tau=0.1):
    """NT-Xent (Chen et al. 2020): every view has to find the other one of its image among all views of the batch."""
    z = F.normalize(torch.cat([z1, z2]), dim=1)  # (2 n) d
    logits = z @ z.T / tau
    logits.fill_diagonal_(-torch.inf)
    partner = torch.arange(len(z), device=z.device).roll(len(z1))
    return F.cross_entropy(logits, partner)


def train(dataset, kind="random", epochs=10, batch_size=128, side_px=32):
    """The trained network."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    pairs = viewkit.load_pairs(
        viewkit.Dataset(dataset),
        policy="strengthened",
        side_px=side_px,
        batch_size=batch_size,
        device=device,
        **PAIRS[kind],
    )
    torch.manual_seed(0)
    network = torchvision.models.resnet18(num_classes=128).to(device)
    optimiser = torch.optim.AdamW(network.parameters(), lr=1e-3)
    for epoch in range(epochs):
        losses = []
        for batch in pairs.epoch(epoch):
            loss = info_nce(network(batch.views1), network(batch.views2))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
        print(f"epoch {epoch}: loss {sum(losses) / len(losses):.3f}")
    return network


if __name__ == "__main__":
    train(sys.argv[1], *sys.argv[2:3], *map(int, sys.argv[3:5]))

"""Train SimCLR with PyTorch Lightning on viewkit's pairs, on one device or several.

python docs/examples/lightning_simclr.py DATASET [EPOCHS] [BATCH_SIZE]
"""

import sys

import pytorch_lightning as lightning
import torch
import torchvision
from lightly.loss import NTXentLoss

import viewkit


class Epoch:
    """The batches of one epoch, as Lightning takes any iterable with a length."""

    def __init__(self, pairs, number):
        self.pairs, self.number = pairs, number

    def __len__(self):
        return self.pairs.steps_per_epoch

    def __iter__(self):
        for batch in self.pairs.epoch(self.number):
            yield batch.views1, batch.views2


class SimCLR(lightning.LightningModule):
    """reload_dataloaders_every_n_epochs=1 makes Lightning ask for every epoch's own batches."""

    def __init__(self, dataset, batch_size=128, side_px=32):
        super().__init__()
        self.options = {"policy": "strengthened", "side_px": side_px, "batch_size": batch_size, "select": "vs2fi"}
        self.dataset = viewkit.Dataset(dataset)
        torch.manual_seed(0)
        self.network = torchvision.models.resnet18(num_classes=128)
        self.criterion = NTXentLoss(temperature=0.1)

    def train_dataloader(self):
        ranks = {"rank": self.trainer.global_rank, "world_size": self.trainer.world_size}
        return Epoch(viewkit.load_pairs(self.dataset, **self.options, **ranks), self.current_epoch)

    def training_step(self, batch, batch_idx):
        views1, views2 = batch
        loss = self.criterion(self.network(views1), self.network(views2))
        self.log("loss", loss, on_step=False, on_epoch=True, batch_size=len(views1))
        return loss

    def on_train_epoch_end(self):
        print(f"epoch {self.current_epoch}: loss {self.trainer.callback_metrics['loss']:.3f}")

    def configure_optimizers(self):
        return torch.optim.AdamW(self.network.parameters(), lr=1e-3)


def train(dataset, epochs=10, batch_size=128, accelerator="auto"):
    """The trained network."""
    module = SimCLR(dataset, batch_size)
    trainer = lightning.Trainer(
        max_epochs=epochs,
        accelerator=accelerator,
        reload_dataloaders_every_n_epochs=1,
        use_distributed_sampler=False,  # load_pairs gives every rank its own rows
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    if epochs:
        trainer.fit(module)
    return module.network


if __name__ == "__main__":
    train(sys.argv[1], *map(int, sys.argv[2:4]))

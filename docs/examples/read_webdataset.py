"""Read a dataset's shards with plain webdataset; nothing of viewkit is imported.

python docs/examples/read_webdataset.py DATASET
"""

import sys
from pathlib import Path

import webdataset


def read_images(dataset):
    """(key, PIL image, class or None) of every row, in order."""
    shards = sorted(str(path) for path in Path(dataset, "images").glob("*.tar"))
    for row in webdataset.WebDataset(shards, shardshuffle=False).decode("pil"):
        image = next(row[name] for name in ("jpg", "jpeg", "png", "webp") if name in row)
        yield row["__key__"], image, row.get("cls")


def read_scores(dataset):
    """(key, recipes [r v p], scores [r c s]) of every scored row, in order; docs/columns.md says what they hold."""
    shards = sorted(str(path) for path in Path(dataset, "pairs").glob("*.tar"))
    for row in webdataset.WebDataset(shards, shardshuffle=False).decode():
        yield row["__key__"], row["recipes.npy"], row["scores.npy"]


def main(dataset):
    for key, image, label in read_images(dataset):
        print(key, image.size, label)
    if Path(dataset, "pairs").is_dir():  # `viewkit score` writes them
        for key, recipes, scores in read_scores(dataset):
            print(key, recipes.shape, scores.shape)


if __name__ == "__main__":
    main(sys.argv[1])

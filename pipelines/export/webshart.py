"""webshart's index of the tars: for every member its place, so that it reads any file of a column at once."""

from pathlib import Path

from viewkit.shards.codecs import encode_json
from viewkit.shards.dataset import Dataset
from viewkit.shards.receipt import shard_name


def write_webshart(folder: Path, dataset: Dataset) -> int:
    """The number of files. ``COLUMN/000000.json`` stands for ``COLUMN/000000.tar``, whose own folder holds receipts of
    that name, so webshart is given both folders."""
    count = 0
    for name in dataset.columns():
        (folder / name).mkdir()
        for receipt in dataset.column(name).receipts():
            files = {
                f"{row.key}.{extension}": {"offset": start, "length": length}
                for row in receipt.rows
                for extension, (start, length) in row.members.items()
            }
            tar = f"{shard_name(receipt.shard)}.tar"
            index = {"path": tar, "filesize": receipt.bytes, "hash": receipt.sha256, "files": files}
            (folder / name / f"{shard_name(receipt.shard)}.json").write_bytes(encode_json(index))
            count += len(files)
    return count

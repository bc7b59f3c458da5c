"""viewkit from Python: the names that other programs may rely on (docs/api.md).

Importing this imports neither torch nor any stage; what a name needs is imported when it is first used.

>>> import viewkit
>>> viewkit.run("pack", "photographs", "dataset", labels="folders", workers=1)
next: viewkit estimator dataset
>>> dataset = viewkit.Dataset("dataset")
>>> dataset.columns()
['images']
>>> dataset.column("images").num_rows
24

Pairs of rendered views, for any trainer:

>>> pairs = viewkit.load_pairs(dataset, policy="simclr", side_px=32, batch_size=8)
>>> batch = next(pairs.epoch(0))
>>> batch.views1.shape, batch.views2.shape
(torch.Size([8, 3, 32, 32]), torch.Size([8, 3, 32, 32]))

The same rows as a webdataset pipeline, split by node and worker:

>>> rows = viewkit.webdataset(dataset, shuffle=0).to_tuple("__key__", "png", "cls")
>>> key, image, label = next(iter(rows))
>>> key, image.shape, label
('class2_image20_37e9c25d42e1', (40, 40, 3), 2)

Everything that can go wrong on disk is one line, of a class of its own:

>>> dataset.column("pairs")
Traceback (most recent call last):
    ...
viewkit.shards.errors.MissingError: dataset has no column 'pairs'; make it with 'viewkit score dataset'
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from viewkit.cli.python import run
    from viewkit.pipelines.export.formats import export_pairs
    from viewkit.pipelines.export.run import load_encoder
    from viewkit.pipelines.pairs.load import load_pairs
    from viewkit.pipelines.pairs.stream import webdataset
    from viewkit.shards.dataset import Dataset
    from viewkit.shards.errors import ConfigError, DataError, MissingError, RefusedError, ViewkitError

__all__ = [
    "ConfigError",
    "DataError",
    "Dataset",
    "MissingError",
    "RefusedError",
    "ViewkitError",
    "export_pairs",
    "load_encoder",
    "load_pairs",
    "run",
    "webdataset",
]

PLACES = {
    "ConfigError": "viewkit.shards.errors",
    "DataError": "viewkit.shards.errors",
    "Dataset": "viewkit.shards.dataset",
    "MissingError": "viewkit.shards.errors",
    "RefusedError": "viewkit.shards.errors",
    "ViewkitError": "viewkit.shards.errors",
    "export_pairs": "viewkit.pipelines.export.formats",
    "load_encoder": "viewkit.pipelines.export.run",
    "load_pairs": "viewkit.pipelines.pairs.load",
    "run": "viewkit.cli.python",
    "webdataset": "viewkit.pipelines.pairs.stream",
}
"""Where every public name is defined."""

RENAMED: dict[str, tuple[str, str]] = {}
"""Former name -> (name now, version that no longer knows the former one); see docs/api.md."""


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib import metadata

        return metadata.version("viewkit")
    if name in RENAMED:
        from viewkit.shards.deprecation import warn_renamed

        now, removed_in = RENAMED[name]
        warn_renamed(f"viewkit.{name}", f"viewkit.{now}", removed_in)
        name = now
    if name not in PLACES:
        raise AttributeError(f"viewkit has no public name '{name}'; docs/api.md lists them")
    value = getattr(import_module(PLACES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])

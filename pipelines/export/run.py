"""A finished run's encoder in Python."""

from pathlib import Path

from viewkit.pipelines.export.export import find_run
from viewkit.pipelines.models import saved
from viewkit.pipelines.models.backbone import Backbone
from viewkit.pipelines.models.saved import EncoderFacts
from viewkit.shards.dataset import run_folder


def load_encoder(run: str | Path) -> tuple[Backbone, EncoderFacts]:
    """The encoder of a finished run, on the CPU and in evaluation mode, and what its views must look like.

    run: its folder, ``DATASET/runs/NAME``, also of a dataset in a store. The backbone takes views [n 3 s s] in 0-1,
    less ``facts.mean``, over ``facts.std``, of ``facts.side_px``. `DataError` for what is no finished run
    or is damaged.
    """
    return saved.load_encoder(find_run(run_folder(run)))

"""What both stages read beyond the columns of pairs and images: generated images and a file of weights, where used."""

from collections.abc import Mapping
from pathlib import Path

from viewkit.pipelines.quality.config import QualityConfig
from viewkit.pipelines.quality.encoders import check_file
from viewkit.shards.artifact import file_digest
from viewkit.shards.dataset import Dataset

PAIRS, IMAGES, GENVIEW = "pairs", "images", "genview"


def has_generated(dataset: Dataset) -> bool:
    """Whether `score` cut some of the stored views from generated images."""
    return GENVIEW in dataset.column(PAIRS).identity.inputs


def columns_of(dataset: Dataset) -> tuple[str, ...]:
    """Columns whose rows are joined."""
    return (IMAGES, PAIRS, GENVIEW) if has_generated(dataset) else (IMAGES, PAIRS)


def more_inputs(stage: str, config: QualityConfig, dataset: Dataset, weights: Path | None) -> Mapping[str, str]:
    """Digests of what `reads` cannot know from the config alone. Raises as `check_file` and `input_digest` do."""
    check_file(config, weights)
    generated = {GENVIEW: dataset.input_digest(GENVIEW, for_stage=stage)} if has_generated(dataset) else {}
    return {**generated, **({} if weights is None else {"weights": file_digest(weights)})}

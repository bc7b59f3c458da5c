"""Which preset fits the images and the machine; what no preset can do is refused."""

from viewkit.pipelines.generate.own.config import PRESETS, GeneratorConfig, PresetName
from viewkit.pipelines.sides import median_side
from viewkit.shards.column import Column
from viewkit.shards.errors import ConfigError, DataError

MIN_IMAGES = 40
"""Fewer are refused: they are learnt by heart long before anything else, and leave none to be measured on."""
MANY = 5_000
"""Images from which on the larger network is worth its time, on a GPU."""
SIDE_SLACK = 1.25
"""So much larger than a preset's views may the images be."""


def check_images(images: Column) -> None:
    """`DataError` for too few images."""
    if images.num_rows < MIN_IMAGES:
        raise DataError(
            f"generator: {images.path.parent} has {images.num_rows} images, and a generator of one's own takes "
            f"{MIN_IMAGES} or more; pack more, or use 'viewkit generate --generator retrieval'"
        )


def num_trained(images: int, held_out: int) -> int:
    """Images that are trained on, of so many that can be used: all but the held-out ones, at most a tenth."""
    return images - min(held_out, images // 10)


def fitting_batch(images: Column, config: GeneratorConfig, preset: PresetName) -> int | None:
    """The batch size as given, or where the preset's is more than the images that are trained on, the largest power of
    two that is not."""
    trained = num_trained(images.num_rows, config.held_out)
    if config.batch_size is not None or PRESETS[preset].batch_size <= trained:
        return config.batch_size
    return 1 << (max(trained, 2).bit_length() - 1)


def check_batch(batch_size: int, trained: int) -> None:
    """`ConfigError` for a batch of more images than are trained on."""
    if batch_size > trained:
        raise ConfigError(f"batch_size is {batch_size} and {trained} images are trained on; lower --batch-size")


def choose_preset(images: Column, device: str) -> tuple[PresetName, str]:
    """The preset, and why, in a line. `DataError` for images that are larger than the views of any preset."""
    check_images(images)
    side = median_side(images) or 0
    sides = sorted({preset.side_px for preset in PRESETS.values()})
    fitting = [each for each in sides if side <= SIDE_SLACK * each]
    if not fitting:
        raise DataError(
            f"generator: the images are of {side:g} px, and it makes views of {' or '.join(map(str, sides))} px: "
            "--preset small-256 shrinks them; for larger views take 'viewkit generate --generator unclip'"
        )
    size = "small" if device.startswith("cuda") and images.num_rows >= MANY else "pico"
    chosen = next(name for name, each in PRESETS.items() if each.side_px == fitting[0] and name.startswith(size))
    machine = "a CPU" if device == "cpu" else "a GPU"
    return chosen, (
        f"preset {chosen} for {images.num_rows} images of {side:g} px on {machine} (--preset decides otherwise, "
        "--dry-run measures)"
    )

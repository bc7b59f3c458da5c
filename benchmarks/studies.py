"""Which studies docs/evidence.md has: an experiment each, its images and what it asks."""

from dataclasses import dataclass

MOSAICS = ("demo:train", "demo:test")


@dataclass(frozen=True)
class Study:
    """name: of its file in docs/evidence. dataset: folder below --out; studies of equal pairs share one. images: the
    source and the test source, or the options that give them. asks: the question. experiment: unless it is called like
    the study. changes: for ``--set``."""

    name: str
    dataset: str
    images: tuple[str, str]
    asks: str
    experiment: str = ""
    changes: tuple[str, ...] = ()
    on_gpu: bool = False

    @property
    def runs(self) -> str:
        return self.experiment or self.name

    @property
    def comparison(self) -> str:
        return self.runs.replace("-", "_")


IMAGENETTE = ("imagenette", "imagenette_test")
CPU_STUDIES = (
    Study("evidence-mosaics-2x2", "mosaics-2x2", MOSAICS, "Which of the stored pairs should be trained on?"),
    Study("evidence-mosaics-long", "mosaics-2x2", MOSAICS, "Does the answer hold in longer trainings?"),
    Study("evidence-mosaics-1x2", "mosaics-1x2", MOSAICS, "And with two photographs an image?"),
    Study("evidence-rounds", "rounds", MOSAICS, "What does it cost to store few rounds of pairs?"),
    Study("evidence-estimator-0", "estimator-0", MOSAICS, "Is an estimator of one step of any use?"),
    Study("evidence-estimator-100", "estimator-100", MOSAICS, "And one of 100 steps?"),
    Study("evidence-estimator-1600", "estimator-1600", MOSAICS, "And one of 1,600 steps?"),
    Study("evidence-generated", "generated", MOSAICS, "What do generated views gain, and screening, and weights?"),
    Study("evidence-precision", "mosaics-2x2", MOSAICS, "Does bfloat16 cost accuracy?"),
    Study("evidence-genview", "genview", MOSAICS, "Which levels, which pairs, of a generator trained on the images?"),
    Study("evidence-genview-weak", "genview", MOSAICS, "And with weak views?"),
    Study("evidence-genview-weights", "genview", MOSAICS, "And with weights by the quality of pairs?"),
    Study("evidence-cifar10", "cifar10", ("cifar10", "cifar10_test"), "Ten ways on images of one object each."),
    Study("evidence-imagenette-64", "imagenette", IMAGENETTE, "Ten ways on photographs."),
)


def gpu_studies() -> tuple[Study, ...]:
    """Mosaics and Imagenette at 64 and 96 px with a ResNet-18 and a ViT-S, 200 epochs of Imagenette's 9,469 images."""
    found = []
    for side_px in (64, 96):
        for arch, optimiser, lr, weight_decay in (
            ("resnet18", "sgd", 0.06, 1e-4),
            ("vit_small_patch8", "adamw", 5e-4, 0.1),
        ):
            network = (f"pretrain.arch={arch}", f"pretrain.side_px={side_px}", "pretrain.framework=moco_v3",
                       f"pretrain.optimiser={optimiser}", f"pretrain.lr={lr}", f"pretrain.weight_decay={weight_decay}",
                       "estimator.preset=small-96", "estimator.arch=vit_small_patch8", "estimator.steps=6000",
                       f"estimator.side_px={side_px}", "estimator.batch_size=256", "estimator.lr=0.0005")  # fmt: skip
            what = f"{side_px} px, {arch}"
            found += [
                Study(f"gpu-mosaics-{side_px}-{arch}", f"gpu-mosaics-{side_px}-{arch}", IMAGENETTE,
                      f"Which stored pair? Mosaics of Imagenette, {what}.", "evidence-mosaics-2x2",
                      (*network, "pack.part_px=128", "pack.mosaics=9469", "pack.labels=folders",
                       "pretrain.batch_size=256", "compare.lengths=[1850, 7400]"), True),
                Study(f"gpu-imagenette-{side_px}-{arch}", f"gpu-imagenette-{side_px}-{arch}", IMAGENETTE,
                      f"Ten ways on Imagenette, {what}.", "evidence-imagenette-64",
                      (*network, "pretrain.batch_size=256", "compare.lengths=[7400]"), True),
            ]  # fmt: skip
    return tuple(found)


STUDIES = (*CPU_STUDIES, *gpu_studies())

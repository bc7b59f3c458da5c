"""Rehearses experiments one after the other in this process; stages that several of them share run once."""

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from tiny_chain import CPU

from viewkit.cli.chain import OF_A_RUN, Job, chain_of
from viewkit.cli.compare import compare
from viewkit.cli.comparison import CompareDevices
from viewkit.cli.jobs import stages_of
from viewkit.pipelines.engine.run import run_stage
from viewkit.pipelines.experiments.experiment import Experiment
from viewkit.pipelines.experiments.handful import copy_handful
from viewkit.pipelines.experiments.rehearse import TEST_IMAGES, TRAIN_IMAGES, rehearsal_of
from viewkit.shards.dataset import Dataset


@dataclass
class Stagehand:
    """Keeps the dataset as it was after every shared stage, by what was run until then. folder: where it lies."""

    folder: Path
    kept: dict[tuple[str, ...], Path] = field(default_factory=dict)

    @property
    def images(self) -> tuple[Path, Path]:
        """Folders of the training and the test images."""
        train, test = self.folder / "train", self.folder / "test"
        if not train.exists():
            copy_handful("demo:train", "folders", train, test, images=(TRAIN_IMAGES, TEST_IMAGES))
        return train, test

    def rehearse(self, experiment: Experiment) -> Dataset:
        """The finished dataset of the experiment's miniature; raises whatever a stage raises."""
        train, test = self.images
        place = self.folder / f"work-{len(self.kept)}-{experiment.name}"
        jobs = chain_of(
            rehearsal_of(experiment).experiment, str(train), place / "dataset", place / "dataset-test", str(test)
        )
        shared = [job for job in jobs if job.spec.name not in (*OF_A_RUN, "compare", "difficulty", "report")]
        rest = [job for job in jobs if job not in shared]
        for job in rest:
            stages_of(job)
        keys = [tuple(_key(job, place) for job in shared[: count + 1]) for count in range(len(shared))]
        done = max((count + 1 for count, key in enumerate(keys) if key in self.kept), default=0)
        if done:
            shutil.copytree(self.kept[keys[done - 1]], place, copy_function=os.link)
        for count, job in enumerate(shared[done:], start=done):
            _run(job)
            self.kept[keys[count]] = self.folder / f"kept-{len(self.kept)}"
            shutil.copytree(place, self.kept[keys[count]], copy_function=os.link)
        for job in rest:
            _run(job)
        return Dataset(place / "dataset")


def _key(job: Job, place: Path) -> str:
    """What a job does, apart from the folder it does it in."""
    return repr((job.name, job.config, sorted(job.locations.items(), key=str))).replace(str(place), "")


def _run(job: Job) -> None:
    if job.experiment is not None:
        compare(job, CompareDevices(device="cpu", jobs=1), as_json=False, closing=False)
        return
    for stage, config in stages_of(job):
        run_stage(stage, config, Dataset(job.dataset), CPU)

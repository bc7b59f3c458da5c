"""`viewkit run --rehearse`: an experiment in miniature, of which nothing is kept."""

import shutil
import tempfile
import time
from pathlib import Path

from viewkit.cli.chain import chain_of
from viewkit.cli.console import say
from viewkit.cli.events import RehearsedEvent, emit
from viewkit.cli.jobs import run_jobs, stages_of
from viewkit.pipelines.engine.execution import Execution
from viewkit.pipelines.experiments.experiment import (
    Experiment,
)
from viewkit.shards.errors import ViewkitError


def rehearse_experiment(experiment: Experiment, source: str, execution: Execution, *, as_json: bool) -> None:
    """Run the miniature of an experiment on a handful of the source's images; its folder is deleted afterwards."""
    from viewkit.pipelines.experiments.handful import copy_handful
    from viewkit.pipelines.experiments.rehearse import TEST_IMAGES, TRAIN_IMAGES, rehearsal_of
    from viewkit.pipelines.pack.config import PARQUET_OPTIONS

    begin = time.monotonic()
    chain_of(experiment, source, Path("dataset"), Path("test"), source)  # its own options, before they are made smaller
    rehearsal = rehearsal_of(experiment)
    packed = experiment.stages.get("pack", ({},))[0]
    labels = str(packed.get("labels", "none"))
    columns = {name: str(packed[name]) for name in PARQUET_OPTIONS if name in packed}
    folder = Path(tempfile.mkdtemp(prefix="viewkit-rehearsal-"))
    try:
        train, test = folder / "train", folder / "test"
        notes = copy_handful(source, labels, train, test, images=(TRAIN_IMAGES, TEST_IMAGES), columns=columns)
        jobs = chain_of(rehearsal.experiment, str(train), folder / "dataset", folder / "dataset-test", str(test))
        checked = [(job, stages_of(job)) for job in jobs]
        small = Execution(device=execution.device, workers=1, max_rejects=execution.max_rejects)
        try:
            run_jobs(checked, small, as_json=as_json, closing=False)
        except ViewkitError as error:
            raise type(error)(f"the rehearsal of '{experiment.name}' stopped: {error}") from error
    finally:
        shutil.rmtree(folder)
    seconds = round(time.monotonic() - begin, 1)
    if as_json:
        replaced = [*notes, *rehearsal.replaced]
        emit(RehearsedEvent(steps=len(jobs), seconds=seconds, replaced=replaced))
        return
    for note in notes:
        say(f"note: {note}")
    for text in rehearsal.replaced:
        say(f"note: {text} stood in")
    say(f"the rehearsal of '{experiment.name}' went through: {len(jobs)} steps in {seconds:g} s; nothing was kept")

"""The files that Slurm is given for a chain of jobs: which waits for which, and what every batch script says. Pure."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

NOTICE_S = 120
"""Seconds before its time is over in which a job stops, keeps what is finished and queues itself again."""
WRITTEN_BY = "Written by 'viewkit slurm'"
MOST_RESTARTS = 100


@dataclass(frozen=True, kw_only=True)
class Task:
    """One entry of the queue. number: of the step in the chain. parts: tasks of an array, 1 for a single job.

    options: what `viewkit run` is told beside the step and the part. after: places of the tasks that must have ended
    well. gpu: whether it runs models.
    """

    number: int
    name: str
    parts: int = 1
    options: tuple[str, ...] = ()
    after: tuple[int, ...] = ()
    gpu: bool = True


@dataclass(frozen=True, kw_only=True)
class Queue:
    """What the tasks share. program: the viewkit to start. arguments: of `viewkit run`. folder: to start it in.

    partition, gpus, cpus, time: as sbatch takes them, None: the cluster's own. setup: lines that scripts begin with.
    """

    experiment: str
    program: str
    arguments: Sequence[str]
    folder: str
    partition: str | None = None
    gpus: str | None = None
    cpus: int | None = None
    time: str | None = None
    setup: Sequence[str] = ()


def render(tasks: Sequence[Task], queue: Queue) -> Mapping[str, str]:
    """File name -> content: a batch script for every task, and ``submit.sh``."""
    names = [f"{place:02d}-{_plain(task.name)}.sbatch" for place, task in enumerate(tasks, 1)]
    steps = max(task.number for task in tasks)
    scripts = {name: _script(task, queue, steps) for name, task in zip(names, tasks, strict=True)}
    return {**scripts, "submit.sh": _submit(tasks, names, queue)}


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", name)


def _script(task: Task, queue: Queue, steps: int) -> str:
    array = task.parts > 1
    wanted = {
        "job-name": f"viewkit-{_plain(task.name)}",
        "output": f"log/%x-{'%A_%a' if array else '%j'}.out",
        "open-mode": "append",
        "array": f"0-{task.parts - 1}" if array else None,
        "partition": queue.partition,
        "gpus": queue.gpus if task.gpu else None,
        "cpus-per-task": queue.cpus,
        "time": queue.time,
        "signal": f"B:USR1@{NOTICE_S}",
    }
    command = ["run", *queue.arguments, "--only", str(task.number), *task.options]
    part = f' --part "${{SLURM_ARRAY_TASK_ID}}/{task.parts}"' if array else ""
    return "\n".join(
        [
            "#!/usr/bin/env bash",
            *(f"#SBATCH --{name}={value}" for name, value in wanted.items() if value is not None),
            "#SBATCH --requeue",
            f"# {task.name}: step {task.number} of {steps} of the experiment '{queue.experiment}'. {WRITTEN_BY}.",
            "# What is finished is kept: submit it again after a failure, and it goes on.",
            f"cd {shlex.quote(queue.folder)} || exit 1",
            *queue.setup,
            "set -euo pipefail",  # after the setup: scripts of modules and of conda read variables that are not set
            "",
            "queue_again() {  # the time is nearly over: stop, keep what is finished, and wait for another turn",
            "  trap '' USR1",
            '  kill -TERM "$!" || true',
            '  wait "$!" || true',
            f'  [ "${{SLURM_RESTART_COUNT:-0}}" -lt {MOST_RESTARTS} ] || exit 1',
            '  exec scontrol requeue "$SLURM_JOB_ID"',
            "}",
            "trap queue_again USR1",
            f"{shlex.join([queue.program, *command])}{part} &",
            'wait "$!"',
            "",
        ]
    )


def _submit(tasks: Sequence[Task], names: Sequence[str], queue: Queue) -> str:
    lines = [
        "#!/usr/bin/env bash",
        f"# Submits the experiment '{queue.experiment}', every step after those it needs. Options go on to sbatch:",
        "# ./submit.sh --account=lab. Submit again to go on where it was; what is there ends at once.",
        "set -euo pipefail",
        'cd "$(dirname "$0")"',
        "mkdir -p log",
        "submit() { sbatch --parsable --kill-on-invalid-dep=yes \"$@\" | cut -d ';' -f 1; }",
        "",
    ]
    for place, (task, name) in enumerate(zip(tasks, names, strict=True)):
        after = ":".join(f"$job{each + 1}" for each in task.after)
        waits = f' --dependency="afterok:{after}"' if after else ""
        lines.append(f'job{place + 1}=$(submit{waits} "$@" {name})')
        lines.append(f'echo "{name}: job $job{place + 1}{" after " + after.replace(":", ", ") if after else ""}"')
    return "\n".join([*lines, ""])

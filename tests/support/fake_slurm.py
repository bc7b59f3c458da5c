"""An `sbatch` that runs what it is given at once, on this machine, in dependency order; for the PATH of tests.

FAKE_SLURM names a folder; a line of JSON there tells every task that ran. Tasks of an array run last to first, so that
none can rely on an earlier one.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path


def main(arguments):
    folder, script = Path(os.environ["FAKE_SLURM"]), Path(arguments[-1])
    given = dict(re.findall(r"^#SBATCH --([a-z-]+)(?:=(.*))?$", script.read_text(), re.MULTILINE))
    given |= dict(word.removeprefix("--").partition("=")[::2] for word in arguments[:-1])
    log = folder / "jobs.jsonl"
    jobs = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    ended_well = {each["job"] for each in jobs} - {each["job"] for each in jobs if each["rc"]}
    number = 100 + len({each["job"] for each in jobs})
    after = {int(each) for each in given.get("dependency", "").removeprefix("afterok:").split(":") if each}
    tasks = range(int(given["array"].partition("-")[2]), -1, -1) if "array" in given else [None]
    started = {}
    for task in tasks if after <= ended_well else []:
        own = {"SLURM_JOB_ID": str(number)} | ({} if task is None else {"SLURM_ARRAY_TASK_ID": str(task)})
        with (folder / f"{script.stem}-{task or 0}.out").open("wb") as said:
            started[task] = subprocess.Popen(["bash", str(script)], env={**os.environ, **own}, stdout=said, stderr=said)
    for task in tasks:
        rc = started[task].wait() if task in started else -1  # a dependency that is never satisfied
        line = {"job": number, "script": script.name, "task": task, "after": sorted(after), "rc": rc}
        with log.open("a") as file:
            file.write(json.dumps(line) + "\n")
    print(f"{number};here" if "parsable" in given else f"Submitted batch job {number}")


if __name__ == "__main__":
    main(sys.argv[1:])

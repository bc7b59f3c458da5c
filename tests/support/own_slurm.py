"""A Slurm of one node on this machine: munged, slurmctld and slurmd on the loopback interface, in one folder."""

import os
import platform
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from stopping import stop

CONFIG = """
ClusterName=viewkit
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
MessageTimeout=60
SchedulerParameters=sched_interval=2,sched_min_interval=100000,batch_sched_delay=1
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
"""
START_S = 40.0


@contextmanager
def started(folder: Path) -> Iterator[dict[str, str]]:
    """Environment in which sbatch and squeue find it; raises with its logs when the node does not come up."""
    for name in ("state", "spool"):
        (folder / name).mkdir(parents=True)
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o600)
    config = folder / "slurm.conf"
    config.write_text(CONFIG.format(host=platform.node().partition(".")[0], folder=folder, ports=_free_ports()))
    environment = {"SLURM_CONF": str(config), "PATH": f"{os.environ['PATH']}:/usr/sbin"}
    files = {"socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed", "key-file": "key"}
    munge = [f"--{option}={folder}/munge.{ending}" for option, ending in files.items()]
    with ExitStack() as stack:
        daemons = (
            ["munged", "--foreground", "--force", *munge],
            ["slurmctld", "-D", "-f", str(config)],
            ["slurmd", "-D", "-f", str(config)],
        )
        for command in daemons:
            stack.enter_context(_running(command, folder, environment))
        _wait_until_idle(folder, environment)
        yield environment


def _free_ports() -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(2)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


@contextmanager
def _running(command: list[str], folder: Path, environment: dict[str, str]) -> Iterator[None]:
    program = shutil.which(command[0], path=environment["PATH"])
    assert program is not None
    with (folder / f"{command[0]}.out").open("wb") as said:
        daemon = subprocess.Popen(
            [program, *command[1:]], env={**os.environ, **environment}, stdout=said, stderr=said, start_new_session=True
        )
    if command[0] == "munged":
        until = time.monotonic() + START_S
        while not (folder / "munge.socket").exists() and daemon.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
    try:
        yield
    finally:
        stop(daemon)


def _wait_until_idle(folder: Path, environment: dict[str, str]) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        said = subprocess.run(
            ["sinfo", "--noheader", "--format=%T"], env={**os.environ, **environment}, capture_output=True, text=True
        )
        if said.stdout.strip() == "idle":
            return
        time.sleep(0.2)
    logs = "\n".join(f"== {path.name}\n{path.read_text()}" for path in folder.glob("*.out"))
    raise AssertionError(f"the node is not idle: {said.stdout}{said.stderr}\n{logs}")

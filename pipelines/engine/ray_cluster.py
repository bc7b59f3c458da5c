"""The Ray cluster that this process is connected to: nodes, and what fits on them. Ray is imported when asked for."""

import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from viewkit.pipelines.engine.execution import RAY, Spread
from viewkit.pipelines.engine.interrupts import STOPPING
from viewkit.shards.errors import ConfigError

ANSWER_S = 10.0
GPU = "cuda:0"
"""What an actor's own GPU is called in it: Ray shows it no other."""


@contextmanager
def connected(on: str) -> Iterator[None]:
    """Connect to the cluster, unless this process is; `ConfigError` where there is none, or no Ray.

    on: ``ray``, or ``ray://HOST:PORT``.
    """
    try:
        import ray
    except ImportError:
        raise ConfigError(
            f"--on {on} needs Ray; pip install '.[ray]' where its source is, here and on every node"
        ) from None
    if ray.is_initialized():
        yield
        return
    with _own_signals():
        try:
            address = _answering(on)
            ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
        except (OSError, ValueError, RuntimeError) as error:  # no connection, no address, other versions there
            raise ConfigError(
                f"--on {on}: the cluster cannot be used ({why_lost(error)}); docs/cluster.md says what it takes"
            ) from None
    ray._private.worker._worker_logs_enabled = False  # else Ray prints about lost nodes, between events on stdout
    try:
        yield
    finally:
        ray.shutdown()
        ray._private.worker._worker_logs_enabled = True


def _answering(on: str) -> str:
    """Address of a cluster to which a connection can be made: Ray itself tries for minutes. `ConfigError` for none."""
    from ray._private.services import canonicalize_bootstrap_address

    named = os.environ.get("RAY_ADDRESS", "") if on == RAY else on
    address = named if named.startswith("ray://") else canonicalize_bootstrap_address("auto")
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    what = "no cluster on this machine, and RAY_ADDRESS names none"
    if address is not None:
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_S).close()
            return address
        except OSError as error:
            what = f"no cluster at {host}:{port} ({error.strerror or error})"
    raise ConfigError(f"--on {on}: there is {what}; start one with 'ray start --head', and see docs/cluster.md")


@contextmanager
def _own_signals() -> Iterator[None]:
    """Ray sets handlers of its own when it connects; ours stay."""
    before = {number: signal.getsignal(number) for number in STOPPING}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in before.items():
                signal.signal(number, handler)


def device_on_ray(execution: Spread) -> str:
    """Where models run on the cluster: its GPUs where it has any and ``--device`` is not cpu."""
    if execution.device == "cpu":
        return "cpu"
    with connected(execution.on):
        has_gpus = bool(seats(GPU))
        if execution.device == "cuda" and not has_gpus:
            raise ConfigError(f"--device is 'cuda', and no node of the cluster has a GPU ({offered()})")
    return GPU if has_gpus else "cpu"


def seats(device: str) -> dict[str, int]:
    """Node -> actors that fit on it: one per GPU, or one per CPU that Ray counts there."""
    kind = "CPU" if device == "cpu" else "GPU"
    return {node: int(there[kind]) for node, there in _nodes().items() if there.get(kind, 0) >= 1}


def _nodes() -> dict[str, Mapping[str, float]]:
    """The nodes that are alive, and what each of them has."""
    import ray

    return {node["NodeID"]: node["Resources"] for node in ray.nodes() if node["Alive"]}


def offered() -> str:
    nodes = _nodes().values()
    cpus, gpus = (int(sum(each.get(kind, 0) for each in nodes)) for kind in ("CPU", "GPU"))
    return f"{len(nodes)} nodes, {cpus} CPUs, {gpus} GPUs"


def why_lost(error: BaseException) -> str:
    """Why an actor was lost, or is not to be had, in a few of Ray's many words."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if any("creation task" in line for line in lines):
        return lines[-1]  # what its constructor raised
    why = next((line for line in lines if "because" in line), lines[0] if lines else type(error).__name__)
    return why.partition(". ")[0].rstrip(".")

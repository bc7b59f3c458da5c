"""Work for actors and worker processes, importable from both."""

import os
import signal
import time

from viewkit.shards.errors import DataError


class Doubles:
    """Work that doubles numbers, with news; what it does instead of some of them is in `trouble`."""

    def __init__(self, trouble=None, pause_s=0.0):
        self.trouble, self.pause_s = trouble or {}, pause_s

    def __call__(self, number):
        import torch

        def work(shard, report):
            report(2)
            report(f"threads {torch.get_num_threads()}")
            time.sleep(self.pause_s)
            if (what := self.trouble.get(shard)) == "data":
                raise DataError(f"shard {shard} is damaged; delete it")
            if what == "bug":
                raise ZeroDivisionError("a bug")
            if what == "memory":
                raise MemoryError
            if what == "dies":
                os.kill(os.getpid(), signal.SIGKILL)
            report(3)
            return 2 * shard

        return work


def cannot_load(number):
    raise DataError("the weights are not there; fetch them")


class Sees:
    """Work that tells which GPU the process was given, and takes long enough for others to get some, too."""

    def __call__(self, number):
        def work(shard, report):
            time.sleep(1.5)
            return os.environ.get("CUDA_VISIBLE_DEVICES")

        return work

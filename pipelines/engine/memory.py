"""Want of memory, as the machine and its libraries put it."""

import resource

OUT_OF_MEMORY = (
    "not enough memory; close other programs, raise the limit ('ulimit -v'), or use fewer --workers or a smaller "
    "--batch-size"
)
SAID = (
    "failed to map segment",  # the loader, of a library
    "cannot allocate memory",
    "can't allocate memory",  # torch
    "not enough memory",
    "out of memory",  # torch, of a GPU
    "can't start new thread",
    "bad_alloc",
)
"""How libraries say it in an `ImportError`, `OSError` or `RuntimeError`."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the error, or what it was raised from, is want of memory."""
    if isinstance(error, MemoryError):
        return True
    if isinstance(error, SystemError) and resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY:
        return True  # an extension that did not look at what an allocation gave it
    if isinstance(error, ImportError | OSError | RuntimeError):
        said = str(error).lower()
        if any(each in said for each in SAID):
            return True
    cause = error.__cause__ or error.__context__
    return cause is not None and is_out_of_memory(cause)

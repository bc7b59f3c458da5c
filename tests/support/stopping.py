"""Programs that a test has started are stopped, one way or the other."""

import subprocess

PATIENCE_S = 10


def stop(program: subprocess.Popen) -> None:
    """Asks it to end, and ends it where it does not."""
    program.terminate()
    try:
        program.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        program.kill()
        program.wait()

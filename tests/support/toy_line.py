"""`viewkit` with one more line in a table: ``python toy_line.py framework|multi_view ARGUMENTS ...``.

The line is added before anything reads the table, as an edit of its file would be.
"""

import sys

from viewkit.pipelines.frameworks.table import FRAMEWORKS
from viewkit.pipelines.training.multi_view import MULTI_VIEW, MultiView


def compare_two(framework):
    """The first views of the two sides alone are compared."""
    framework.merge = lambda outputs: (outputs[0], outputs[len(outputs) // 2])


LINES = {
    "framework": lambda: FRAMEWORKS.update(toy="toy_framework:CARD"),
    "multi_view": lambda: MULTI_VIEW.update(
        toy=MultiView(help="loss of two views", apply=compare_two, needs=("by_direction",))
    ),
}

if __name__ == "__main__":
    LINES[sys.argv[1]]()
    from viewkit.cli.main import run

    sys.exit(run(sys.argv[2:]))

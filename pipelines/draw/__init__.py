"""Stage `draw`: plain pairs of every image, without an estimator."""

ALSO_WRITES = {"pairs": "draw"}

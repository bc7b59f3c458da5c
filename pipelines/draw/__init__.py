"""Stage `draw`: plain pairs of every image, without an estimator."""

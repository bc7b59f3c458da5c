"""Stage `evaluate`: kNN and linear accuracy of a run."""

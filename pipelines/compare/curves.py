"""Learning curves of a cell: the mean over seeds of what its runs logged, with its spread."""

from collections.abc import Sequence
from typing import Any

import numpy as np

METRICS = ("loss", "knn_top1")
"""What is drawn, where every run of a cell logged it; ``knn_top1`` needs pretrain's `knn_epochs`."""


def mean_curves(logs: Sequence[Sequence[dict[str, Any]]]) -> dict[str, dict[str, list[float]]]:
    """logs: lines of metrics.jsonl, one list a seed. Metric -> step, mean and sd (0 with one seed) at every line that
    all seeds have."""
    curves = {}
    for metric in METRICS:
        points = [{line["step"]: line[metric] for line in log if line.get(metric) is not None} for log in logs]
        steps = sorted(set.intersection(*(set(each) for each in points)))
        if not steps:
            continue
        values = np.array([[each[step] for step in steps] for each in points])
        sd = values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros(len(steps))
        curves[metric] = {"step": [float(step) for step in steps], "mean": values.mean(axis=0).tolist(),
                          "sd": sd.tolist()}  # fmt: skip
    return curves

"""What makes a pair hard: which sampled parameters its loss depends on (Hard View Selection, sec. 5.1, appendix D)."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float64

from viewkit.pipelines.hard_views.fanova import fanova
from viewkit.pipelines.pairs.order import pair_index
from viewkit.pipelines.views.recipe import BOX, NO_SOLARIZE, column

ROWS = 2000
"""Logged rows that are analysed, at most; a seeded sample of them."""
TREES = 60
TEST_SHARE = 0.2
JITTER = ("brightness", "contrast", "saturation", "hue")


@dataclass(frozen=True)
class Importance:
    """names, means, deviations: of every parameter, how much of R^2 is lost when it is shuffled between pairs, over
    five shuffles; descending. variances: of the same parameters, the share of the forest's variance that each explains
    alone (`fanova`, the paper's measure). r2: of the forest on rows it has not seen. lowest_iou: share of rows whose
    selected pair overlaps least (1 / c by chance). rows: how many were analysed.
    """

    names: tuple[str, ...]
    means: tuple[float, ...]
    deviations: tuple[float, ...]
    variances: tuple[float, ...]
    r2: float
    lowest_iou: float
    rows: int

    def lines(self) -> list[str]:
        """The table as text."""
        table = [
            f"{name:<20} {mean:7.4f} +- {deviation:.4f} {variance:9.1%}"
            for name, mean, deviation, variance in zip(
                self.names, self.means, self.deviations, self.variances, strict=True
            )
        ]
        return [
            f"{self.rows} rows; selected pair overlaps least: {self.lowest_iou:.1%}; R^2 of the forest: {self.r2:.3f}",
            f"{'parameter':<20} permutation R^2     fANOVA",
            *table,
        ]


def view_importance(log: dict[str, np.ndarray], *, seed: int = 0, rows: int = ROWS) -> Importance | None:
    """Permutation importance and fANOVA of the sampled parameters for a pair's loss, by one random forest.

    log: of `read_view_log`; rows with views of two images, of which pairs have no overlap, are left out. Losses are
    taken less their step's mean, since they fall while training. None where nothing was logged, or only crops of
    several sides.
    """
    from sklearn.ensemble import RandomForestRegressor
    from sklearn.inspection import permutation_importance

    log = of_one_image(log)
    if "iou" not in log or len(log["iou"]) < 10:
        return None
    rng = np.random.default_rng(seed)
    sample = rng.permutation(len(log["iou"]))[:rows]
    losses = log["losses"].astype(np.float64)
    for step in np.unique(log["step"]):
        losses[log["step"] == step] -= losses[log["step"] == step].mean()
    features = pair_parameters(log["recipes"][sample], log["sizes_px"][sample], log["iou"][sample])
    x = np.stack(list(features.values()), axis=2)  # n c f
    tested = max(1, round(TEST_SHARE * len(sample)))
    old, new = slice(tested, None), slice(0, tested)
    y = losses[sample]
    forest = RandomForestRegressor(n_estimators=TREES, min_samples_leaf=5, random_state=seed)
    forest.fit(x[old].reshape(-1, x.shape[2]), y[old].reshape(-1))
    held = x[new].reshape(-1, x.shape[2]), y[new].reshape(-1)
    found = permutation_importance(forest, *held, n_repeats=5, random_state=seed)
    variances = fanova(forest, x.reshape(-1, x.shape[2]).min(axis=0), x.reshape(-1, x.shape[2]).max(axis=0))
    order = np.argsort(-found.importances_mean, kind="stable")
    names = list(features)
    return Importance(
        names=tuple(names[j] for j in order),
        means=tuple(float(found.importances_mean[j]) for j in order),
        deviations=tuple(float(found.importances_std[j]) for j in order),
        variances=tuple(float(variances[j]) for j in order),
        r2=float(forest.score(*held)),
        lowest_iou=share_of_lowest_iou(log),
        rows=len(sample),
    )


def share_of_lowest_iou(log: dict[str, np.ndarray]) -> float:
    """Share of logged rows whose selected pair has the least overlap, the first where there are several."""
    pairs = pair_index(log["recipes"].shape[1])
    lowest = pairs[log["iou"].argmin(axis=1)]
    return float((lowest == log["views"]).all(axis=1).mean())


def of_one_image(log: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The rows of which every pair has an overlap: those with views of one image; a log of no pairs as it is."""
    if "iou" not in log:
        return log
    whole = ~np.isnan(log["iou"]).any(axis=1)
    return {name: values[whole] for name, values in log.items()}


def pair_parameters(
    recipes: Float[np.ndarray, "n v p"], sizes_px: np.ndarray, iou: Float[np.ndarray, "n c"]
) -> dict[str, Float64[np.ndarray, "n c"]]:
    """The parameters of every pair that appendix D analyses: overlap, distance of centres (image diagonals),
    distances of colours, and, beyond it, the two areas and their log ratio."""
    first, second = pair_index(recipes.shape[1]).T
    wide = recipes.astype(np.float64)

    def both(name: str) -> tuple[np.ndarray, np.ndarray]:
        values = wide[:, :, column(name)]
        return values[:, first], values[:, second]

    def distance(name: str) -> np.ndarray:
        one, other = both(name)
        return np.abs(one - other)

    boxes = wide[:, :, BOX]
    centres = (boxes[:, :, :2] + boxes[:, :, 2:] / 2) * sizes_px
    diagonal = np.linalg.norm(sizes_px.astype(np.float64), axis=2)[:, first]
    area = boxes[:, :, 2] * boxes[:, :, 3]
    colours = np.stack([distance(name) for name in JITTER], axis=2)
    solarized = wide[:, :, column("solarize")] < NO_SOLARIZE
    return {
        "iou": iou.astype(np.float64),
        "centre distance": np.linalg.norm(centres[:, first] - centres[:, second], axis=2) / diagonal,
        "area ratio": np.abs(np.log(area[:, first] / area[:, second])),
        "smaller area": np.minimum(area[:, first], area[:, second]),
        "larger area": np.maximum(area[:, first], area[:, second]),
        "colour distance": np.linalg.norm(colours, axis=2),
        **{name: distance(name) for name in JITTER},
        "one grey": distance("grey"),
        "blur": distance("sigma"),
        "one solarized": (solarized[:, first] != solarized[:, second]).astype(np.float64),
        "one flipped": distance("flip"),
    }

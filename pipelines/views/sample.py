"""Sample recipes. The only place of `views` that samples anything.

Every number comes from one Philox stream a (row, view): key = the row's 128-bit id, counter = (block, view, round,
domain of seed and stage). So a recipe depends on (seed, stage, key, round, view) and on nothing else: not on the
order of rows, the worker, the machine or the number of views sampled beside it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from jaxtyping import Float, Float32, Float64, Int, UInt64

from viewkit.pipelines.views import boxes, randaugment
from viewkit.pipelines.views.joint import joint_pair
from viewkit.pipelines.views.policy import JointSpec, Policy, factor_range, parameter_range
from viewkit.pipelines.views.portable import log
from viewkit.pipelines.views.recipe import NO_SOLARIZE, NUM_FIELDS, VERSION, column
from viewkit.pipelines.views.streams import Streams, open_streams
from viewkit.shards.errors import ConfigError, DataError
from viewkit.shards.spans import spanned

Pipelines = Literal["alternate", "random"]

# Blocks of four numbers in a view's stream. Try t of a crop has its blocks at t * TRY: the crop, then Beta's own tries.
CROP, COINS, JITTER, FILTERS, RANDAUGMENT, SIGNS = range(6)
BETA, BETA_TRIES = 16, 96
RESIZED, NUM_RESIZED_TRIES = 128, 10  # torchvision's rule: a block for each of its tries
TRY = 2**10
TOGETHER = 4096
"""Tries of an IoU ceiling that are sampled at once."""
# Stand in the place of the view in a counter, for numbers that belong to a pair of views or to the whole row.
PAIR = 2**32
SOURCE = 2**33
SELECTION = 2**34


def _spec_column(policy: Policy, name: str, specs: Int[np.ndarray, " m"]) -> Float64[np.ndarray, " m"]:
    return np.array([float(getattr(spec, name)) for spec in policy.views])[specs]


def _spec_range(policy: Policy, name: str, specs: Int[np.ndarray, " m"]) -> Float64[np.ndarray, "m 2"]:
    return np.array([getattr(spec, name) for spec in policy.views], dtype=np.float64)[specs]


@dataclass(frozen=True)
class _Plan:
    """What all samples of one call share. m = n v places, ordered by row; pairs: places of views (0, 1), (2, 3), ..."""

    policy: Policy
    streams: Streams
    pair_streams: Streams
    pairs: Int[np.ndarray, "k 2"]
    specs: Int[np.ndarray, " m"]
    sizes: Int[np.ndarray, "m 2"]
    foreground: Float64[np.ndarray, "m 4"] | None


@spanned("sample")
def sample_recipes(
    policy: Policy,
    ids: UInt64[np.ndarray, "n 2"],
    sizes: Int[np.ndarray, "n 2"],
    *,
    seed: int,
    stage: str,
    round: int = 0,
    num_views: int | None = None,
    pipelines: Pipelines = "alternate",
    rounds: int = 1,
    p_generated: float = 0.0,
    generated_sizes: Int[np.ndarray, "n 2"] | None = None,
    foreground: Float[np.ndarray, "n 4"] | None = None,
) -> Float32[np.ndarray, "n v p"]:
    """Recipes of `num_views` views of every row (the policy's own number when None).

    ids: `seeds.row_ids` of the keys. sizes: (height, width) of the images in px. rounds: how many rounds there will
    be, for the schedule of an IoU ceiling.
    pipelines: "alternate": view j follows specification j mod their number (T1, T2, T1, ...); "random": each view
        samples its specification (VS-2FI, Alg. 1).
    p_generated: share of rows of which half of the views (one of two, chosen at random; at least one) use the
    generated image (GenView, sec. 3.1); generated_sizes: sizes of those, like `sizes` when None.
    foreground: boxes from `boxes.foreground_boxes`, in which the centres of the crops then lie (ContrastiveCrop).
    Raises `DataError` for an image without pixels and `ConfigError` for an impossible option.
    """
    v = policy.num_views if num_views is None else num_views
    if v < 1:
        raise ConfigError(f"num_views is {v}; needed at least 1")
    if pipelines not in get_args(Pipelines):
        raise ConfigError(f"pipelines is {pipelines!r}; needed one of {', '.join(get_args(Pipelines))}")
    policy.check_joint(v, any_specs=pipelines == "random")
    rows = open_streams(ids, seed, stage, round)
    streams = rows.places(0, v)
    coins = streams.uniforms(FILTERS)
    specs = np.tile(np.arange(v) % len(policy.views), len(ids))
    if pipelines == "random":
        specs = (coins[:, 3] * len(policy.views)).astype(np.int64)
    source = _sources(rows, v, p_generated)  # (n v)
    pairs = (np.arange(len(ids))[:, None, None] * v + np.arange(v // 2 * 2).reshape(-1, 2)).reshape(-1, 2)
    plan = _Plan(
        policy=policy,
        streams=streams,
        pair_streams=rows.places(PAIR, v // 2),
        pairs=pairs,
        specs=specs,
        sizes=_sizes(sizes, generated_sizes, source, v),
        foreground=None if foreground is None else np.repeat(foreground.astype(np.float64), v, axis=0),
    )
    recipes = np.zeros((len(specs), NUM_FIELDS))
    recipes[:, column("version")], recipes[:, column("spec")], recipes[:, column("source")] = VERSION, specs, source
    recipes[:, column("side")] = np.array([policy.side_of(spec) for spec in range(len(policy.views))])[specs]
    recipes[:, column("top") : column("width") + 1] = _crops(plan, rows, v, round, rounds)
    _fill_colour(plan, coins, recipes)
    _fill_randaugment(plan, recipes)
    return recipes.astype(np.float32).reshape(len(ids), v, NUM_FIELDS)


def sizes_px(images: Sequence[Any]) -> Int[np.ndarray, "n 2"]:
    """(height, width) in px of every image; arrays or tensors [h w 3]."""
    return np.array([image.shape[:2] for image in images], dtype=np.int64).reshape(-1, 2)


def sample_selection(
    ids: UInt64[np.ndarray, "n 2"], *, seed: int, stage: str, round: int
) -> Float64[np.ndarray, "n 4"]:
    """Four uniforms per row for selecting a pair: which one, its order, whether a view is generated, and which view."""
    return open_streams(ids, seed, stage, round).places(SELECTION, 1).uniforms(0)


def sample_permutations(
    ids: UInt64[np.ndarray, "n 2"], num_pairs: int, *, seed: int, stage: str, round: int
) -> Int[np.ndarray, "n c"]:
    """A permutation of every row's pairs, each equally likely, for placebos."""
    rows = open_streams(ids, seed, stage, round).places(SELECTION, 1)
    blocks = range(1, 1 + -(-num_pairs // 4))  # block 0 is `sample_selection`'s
    return np.concatenate([rows.uniforms(block) for block in blocks], axis=1)[:, :num_pairs].argsort(
        axis=1, kind="stable"
    )


def _sources(rows: Streams, v: int, p_generated: float) -> Int[np.ndarray, " m"]:
    if not 0 <= p_generated <= 1:
        raise ConfigError(f"p_generated is {p_generated}; needed a number in [0, 1]")
    if p_generated == 0:
        return np.zeros(len(rows.ids) * v, dtype=np.int64)
    blocks = -(-v // 4)
    keys = np.concatenate([rows.places(SOURCE, 1).uniforms(1 + block) for block in range(blocks)], axis=1)[:, :v]
    rank = keys.argsort(axis=1, kind="stable").argsort(axis=1, kind="stable")
    uses = rows.places(SOURCE, 1).uniforms(0)[:, :1] < p_generated
    return (uses & (rank < max(1, v // 2))).astype(np.int64).reshape(-1)


def _sizes(
    sizes: Int[np.ndarray, "n 2"],
    generated_sizes: Int[np.ndarray, "n 2"] | None,
    source: Int[np.ndarray, " m"],
    v: int,
) -> Int[np.ndarray, "m 2"]:
    """(height, width) of the image that every view is cropped from."""
    both = np.stack([sizes, sizes if generated_sizes is None else generated_sizes])  # 2 n 2
    if (empty := np.argwhere(both < 1)).size:
        row = empty[0, 1]
        raise DataError(
            f"row {row}: the image is {both[empty[0, 0], row].tolist()} px (height, width); needed 1 or more"
        )
    return both[source, np.repeat(np.arange(len(sizes)), v)]


def _crops(plan: _Plan, rows: Streams, v: int, round: int, rounds: int) -> Float64[np.ndarray, "m 4"]:
    """Boxes of all views; pairs that overlap too much are sampled again (Hard View Selection, sec. 5.2)."""
    found = np.empty((len(plan.specs), 4))
    every = np.arange(len(plan.pairs))
    found[plan.pairs] = _crop_pairs(plan, every, np.zeros_like(every))
    if v % 2:
        alone = np.arange(v - 1, len(plan.specs), v)
        nobody = every[:0]
        found[alone] = _crop(plan, alone, np.zeros_like(alone), nobody)
    ceiling = plan.policy.iou
    if ceiling is None:
        return found
    bound = ceiling.bound(round, rounds)
    shared = boxes.overlap(found[plan.pairs[:, 0]], found[plan.pairs[:, 1]])
    still = shared > bound
    if ceiling.alternating:
        still &= np.repeat((rows.ids[:, 0] + np.uint64(round)) % np.uint64(2) == 0, v // 2)
    attempt, together = 1, 1
    while attempt < ceiling.tries and still.any():
        left = np.flatnonzero(still)  # q pairs; a few tries of each at once, the first that passes counts
        tries = np.arange(attempt, min(attempt + together, ceiling.tries))
        again = _crop_pairs(plan, np.repeat(left, len(tries)), np.tile(tries, len(left)))
        overlaps = boxes.overlap(again[:, 0], again[:, 1]).reshape(len(left), len(tries))
        passed = overlaps <= bound
        best = np.where(passed.any(axis=1), passed.argmax(axis=1), overlaps.argmin(axis=1))
        row = np.arange(len(left))
        better = overlaps[row, best] < shared[left]
        found[plan.pairs[left[better]]] = again.reshape(len(left), len(tries), 2, 4)[row, best][better]
        shared[left] = np.minimum(shared[left], overlaps[row, best])
        still[left] = shared[left] > bound
        attempt += len(tries)
        together = min(2 * together, max(1, TOGETHER // len(left)))
    return found


def _crop_pairs(
    plan: _Plan, pairs: Int[np.ndarray, " q"], attempts: Int[np.ndarray, " q"]
) -> Float64[np.ndarray, "q 2 4"]:
    """One try for both boxes of each of the pairs."""
    return _crop(plan, plan.pairs[pairs].reshape(-1), np.repeat(attempts, 2), pairs).reshape(-1, 2, 4)


def _crop(
    plan: _Plan, at: Int[np.ndarray, " k"], attempts: Int[np.ndarray, " k"], pairs: Int[np.ndarray, " q"]
) -> Float64[np.ndarray, "k 4"]:
    """One try for the boxes of the places `at`, which are those of `pairs` in turn (or of no pair)."""
    centre = np.array([[0.0, 0.0, 1.0, 1.0]]) if plan.foreground is None else plan.foreground[at]
    centre = np.broadcast_to(centre, (len(at), 4))
    if plan.policy.crop == "torchvision":
        return _resized_crop(plan, at, attempts, centre)
    u = plan.streams.uniforms(attempts * TRY + CROP, at)
    height, width = _exact_extents(plan, at, attempts, pairs, u)
    positions = _positions(plan, at, attempts, u[:, 2:])
    top = boxes.box_corner(height, positions[:, 0], centre[:, 0], centre[:, 0] + centre[:, 2])
    left = boxes.box_corner(width, positions[:, 1], centre[:, 1], centre[:, 1] + centre[:, 3])
    return np.stack([top, left, height, width], axis=1)


def _exact_extents(
    plan: _Plan,
    at: Int[np.ndarray, " k"],
    attempts: Int[np.ndarray, " k"],
    pairs: Int[np.ndarray, " q"],
    u: Float64[np.ndarray, "k 4"],
) -> tuple[Float64[np.ndarray, " k"], Float64[np.ndarray, " k"]]:
    """Heights and widths, in fractions, of crops that have exactly the areas that were sampled."""
    specs, sizes = plan.specs[at], plan.sizes[at]
    span = _spec_range(plan.policy, "area", specs)
    area = span[:, 0] + (span[:, 1] - span[:, 0]) * u[:, 0]
    if pairs.size:
        area = _joint(plan, "area", area.reshape(-1, 2), pairs, attempts[::2]).reshape(-1)
    ends = log(_spec_range(plan.policy, "aspect", specs))
    return boxes.box_extent(area, ends[:, 0] + (ends[:, 1] - ends[:, 0]) * u[:, 1], sizes[:, 1] / sizes[:, 0])


def _resized_crop(
    plan: _Plan, at: Int[np.ndarray, " k"], attempts: Int[np.ndarray, " k"], centre: Float64[np.ndarray, "k 4"]
) -> Float64[np.ndarray, "k 4"]:
    """Boxes as torchvision's RandomResizedCrop samples them, in whole pixels: area and aspect are sampled up to ten
    times until both fit; where none does, the centred part of the image whose aspect is the nearest one allowed."""
    specs, sizes = plan.specs[at], plan.sizes[at]
    span, aspect = (_spec_range(plan.policy, name, specs) for name in ("area", "aspect"))
    ends = log(aspect)
    extents, u = boxes.central_extents(sizes, aspect), np.zeros((len(at), 4))
    left = np.arange(len(at))
    for number in range(NUM_RESIZED_TRIES):
        u[left] = plan.streams.uniforms(attempts[left] * TRY + RESIZED + number, at[left])
        area = span[left, 0] + (span[left, 1] - span[left, 0]) * u[left, 0]
        log_aspect = ends[left, 0] + (ends[left, 1] - ends[left, 0]) * u[left, 1]
        tried, fits = boxes.whole_extents(area, log_aspect, sizes[left])
        extents[left[fits]] = tried[fits]
        left = left[~fits]
        if not left.size:
            break
    corners = boxes.whole_corners(extents, _positions(plan, at, attempts, u[:, 2:]), centre, sizes)
    corners[left] = np.floor((sizes[left] - extents[left]) / 2)
    return np.concatenate([corners / sizes, extents / sizes], axis=1)


def _positions(
    plan: _Plan, at: Int[np.ndarray, " k"], attempts: Int[np.ndarray, " k"], u: Float64[np.ndarray, "k 2"]
) -> Float64[np.ndarray, "k 2"]:
    """Uniform, or Beta(a, a) where the specification suppresses the centre."""
    suppression = _spec_column(plan.policy, "centre", plan.specs[at])
    found = u.copy()
    for a in np.unique(suppression[suppression < 1]).tolist():
        todo = np.flatnonzero(suppression == a)
        done = np.zeros((len(todo), 2), dtype=bool)
        for again in range(BETA_TRIES):
            left = np.flatnonzero(~done.all(axis=1))
            if not left.size:
                break
            draws = plan.streams.uniforms(attempts[todo[left]] * TRY + BETA + again, at[todo[left]])
            for axis in range(2):
                value, accepted = boxes.beta_candidate(draws[:, 2 * axis], draws[:, 2 * axis + 1], a)
                fresh = accepted & ~done[left, axis]
                found[todo[left[fresh]], axis] = value[fresh]
                done[left[fresh], axis] = True
    return found


def _joint(
    plan: _Plan,
    parameter: str,
    independent: Float64[np.ndarray, "q 2"],
    pairs: Int[np.ndarray, " q"],
    attempts: Int[np.ndarray, " q"],
) -> Float64[np.ndarray, "q 2"]:
    """The parameter of both views: independent, or sampled jointly where a joint distribution is used on the pair."""
    values = independent.copy()
    mixed = plan.policy.joint_mix == "one"
    taken = 0.0
    for index, joint in enumerate(plan.policy.joint):
        start, taken = taken, taken + joint.probability
        if joint.parameter != parameter:
            continue
        coin = plan.pair_streams.uniforms(0 if mixed else index, pairs)[:, 2]
        used = (coin >= start) & (coin < taken) if mixed else coin < joint.probability
        low, high = _pair_range(plan.policy, joint, plan.specs[plan.pairs[pairs]])
        at = np.flatnonzero(used & (high > 0))
        u = plan.pair_streams.uniforms(attempts[at] * TRY + index, pairs[at])
        values[at] = joint_pair(u[:, 0], u[:, 1], joint.beta, low[at], high[at])
    return values


def _pair_range(
    policy: Policy, joint: JointSpec, specs: Int[np.ndarray, "q 2"]
) -> tuple[Float64[np.ndarray, " q"], Float64[np.ndarray, " q"]]:
    """Range of the parameter, the same in both views of a pair, where both are covered; (0, 0) elsewhere."""
    spans = np.array([parameter_range(spec, joint.parameter) for spec in policy.views], dtype=np.float64)
    covered = np.array([not joint.specs or index in joint.specs for index in range(len(policy.views))])
    span = spans[specs[:, 0]] * covered[specs].all(axis=1)[:, None]
    return span[:, 0], span[:, 1]


def _fill_colour(plan: _Plan, filters: Float64[np.ndarray, "m 4"], recipes: Float64[np.ndarray, "m p"]) -> None:
    """Flip, jitter, grey, blur and solarize, each under its own coin."""
    policy, specs, every = plan.policy, plan.specs, np.arange(len(plan.pairs))
    first = np.zeros_like(every)  # only crops are tried again
    coins, jitter = plan.streams.uniforms(COINS), plan.streams.uniforms(JITTER)

    def share(name: str) -> Float64[np.ndarray, " m"]:
        return _spec_column(policy, name, specs)

    recipes[:, column("flip")] = coins[:, 0] < share("p_flip")
    jittered = coins[:, 1] < share("p_jitter")
    recipes[:, column("order")] = np.floor(coins[:, 2] * 24)
    grey = coins[:, 3] < share("p_grey")
    recipes[:, column("grey")] = grey * (1 + share("grey_first"))
    for index, name in enumerate(("brightness", "contrast", "saturation")):
        span = np.array([factor_range(spec, name) for spec in policy.views])[specs]
        factor = span[:, 0] + (span[:, 1] - span[:, 0]) * jitter[:, index]
        factor[plan.pairs] = _joint(plan, name, factor[plan.pairs], every, first)
        recipes[:, column(name)] = np.where(jittered, factor, 1.0)
    recipes[:, column("hue")] = np.where(jittered, share("hue") * (2 * jitter[:, 3] - 1), 0.0)
    span = _spec_range(policy, "sigma", specs)
    sigma = span[:, 0] + (span[:, 1] - span[:, 0]) * filters[:, 1]
    sigma[plan.pairs] = _joint(plan, "sigma", sigma[plan.pairs], every, first)
    recipes[:, column("sigma")] = np.where(filters[:, 0] < share("p_blur"), sigma, 0.0)
    recipes[:, column("solarize")] = np.where(filters[:, 2] < share("p_solarize"), share("threshold"), NO_SOLARIZE)


def _fill_randaugment(plan: _Plan, recipes: Float64[np.ndarray, "m p"]) -> None:
    """Two operations, each one of fourteen, at the specification's magnitude and a random sign where it has one."""
    p = _spec_column(plan.policy, "p_randaugment", plan.specs)
    if not p.any():
        return
    u, signs = plan.streams.uniforms(RANDAUGMENT), plan.streams.uniforms(SIGNS)
    magnitude = _spec_column(plan.policy, "magnitude", plan.specs)
    used = u[:, 0] < p
    for slot in range(2):
        operation = np.where(used, np.floor(u[:, 1 + slot] * len(randaugment.OPERATIONS)), 0).astype(np.int64)
        strength = randaugment.strengths(operation, magnitude, signs[:, slot] < 0.5)
        recipes[:, column(f"op_{slot + 1}")] = operation
        recipes[:, column(f"strength_{slot + 1}")] = strength

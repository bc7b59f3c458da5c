from dataclasses import replace

import numpy as np
import pytest
import torch
from vs2fi_world import make_genview, make_images

from viewkit.pipelines.encoders.crop_boxes import CropBoxes
from viewkit.pipelines.engine.contract import Run
from viewkit.pipelines.engine.execution import Execution
from viewkit.pipelines.engine.run import plan_stage, run_stage
from viewkit.pipelines.frameworks.table import create_framework
from viewkit.pipelines.hard_views.log import read_view_log
from viewkit.pipelines.models.backbones import create_backbone
from viewkit.pipelines.pairs.source import ViewBatch
from viewkit.pipelines.pretrain.config import PretrainConfig, resolve
from viewkit.pipelines.pretrain.pairs import create_selector, create_source, views_policy, weight_by_quality
from viewkit.pipelines.pretrain.stage import PretrainStage, shares_of
from viewkit.pipelines.training import loop
from viewkit.pipelines.training.monitoring import read_metrics
from viewkit.pipelines.training.step import Stepper
from viewkit.pipelines.views.boxes import overlap
from viewkit.pipelines.views.policy import JointSpec
from viewkit.pipelines.views.recipe import BOX, column
from viewkit.shards.errors import ConfigError

CPU = Execution(device="cpu")
CONFIG = PretrainConfig(
    framework="simsiam", arch="resnet10_narrow", lr=0.05, epochs=3, warmup_epochs=0.0, batch_size=8, hidden=16, dim=16,
    side_px=16,
)  # fmt: skip
DINO = PretrainConfig(
    framework="dino", arch="resnet10_narrow", epochs=1, warmup_epochs=0.0, batch_size=8, hidden=16, bottleneck=8,
    dim=24, side_px=16, last_freeze_epochs=0.0, select="hard", small_views=9, comparisons=6,
)  # fmt: skip
TIMES = ("images_per_s", "wait_share", "render_share")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return make_images(tmp_path_factory.mktemp("views") / "d")


def simsiam():
    return create_framework(create_backbone(CONFIG.arch, CONFIG.side_px), resolve(CONFIG), steps=1)


def run_of(dataset):
    return Run(dataset=dataset, folder=dataset.path, stage="pretrain")


def test_a_run_on_hard_views_killed_in_the_middle_of_an_epoch_chooses_the_same_afterwards(dataset, monkeypatch):
    config = replace(CONFIG, select="hard", select_side_px=8, agreement_every=5, log_views=3)
    whole = run_stage(PretrainStage("whole"), config, dataset, CPU)
    assert 0 < whole.numbers["lowest_iou"] < 1 and 0 < whole.numbers["hard_agreement"] <= 1
    monkeypatch.setattr(loop, "CHECKPOINT_S", 0.0)
    steps, train_step = [], loop.train_step

    def dying(*arguments):
        steps.append(1)
        if len(steps) == 14:
            raise MemoryError
        return train_step(*arguments)

    monkeypatch.setattr(loop, "train_step", dying)
    with pytest.raises(MemoryError):
        run_stage(PretrainStage("killed"), config, dataset, CPU)
    resumed = run_stage(PretrainStage("killed"), config, dataset, CPU)
    assert len(steps) == 14 + 5 and resumed.numbers == whole.numbers
    logs = [read_view_log(dataset.path / "runs" / name) for name in ("whole", "killed")]
    assert logs[0]["step"].tolist() == np.repeat([0, 3, 6, 9, 12], 8).tolist()
    assert all(np.array_equal(values, logs[1][name]) for name, values in logs[0].items())
    lines = [read_metrics(dataset.path / "runs" / name / "metrics.jsonl") for name in ("whole", "killed")]
    assert [line["loss"] for line in lines[0]] == [line["loss"] for line in lines[1]]
    files = dataset.artifact("runs/whole").files
    assert next(name for name in files if name.startswith("views/")) == "views/00000000.npz"


def test_a_plan_of_hard_views_times_selection_too_and_writes_nothing(dataset):
    plan = plan_stage(PretrainStage("plan"), replace(CONFIG, select="easy", log_views=1), dataset, CPU)
    assert plan["step_s"] > 0 and not (dataset.path / "runs" / "plan").exists()


@pytest.mark.parametrize(
    "options",
    [
        {"framework": "moco_v3", "views_per_side": 2, "multi_view": "dsf", "joint_area": 0.0},
        {"framework": "moco_v1", "hidden": None, "queue_length": 16, "bn_splits": 1, "views_per_side": 2,
         "multi_view": "dsf", "dsf_exact": True},
        {"views_per_side": 2, "multi_view": "fea_avg"},
        {"select": "lowest_iou", "views": 3},
        {"generated": "extra"},
    ],
)  # fmt: skip
def test_runs_on_other_views_end(dataset, options):
    config = replace(CONFIG, epochs=1, **options)
    assert np.isfinite(
        run_stage(PretrainStage("-".join(map(str, options.values()))), config, dataset, CPU).numbers["loss"]
    )


def test_a_run_of_dino_chooses_among_crops(dataset):
    run_stage(PretrainStage("dino"), replace(DINO, log_views=1), dataset, CPU)
    log = read_view_log(dataset.path / "runs" / "dino")
    assert log["views"].shape == (40, 10) and log["recipes"].shape == (40, 13, 21)
    assert (log["views"][:, :2] % 2 == [0, 1]).all() and (log["views"][:, 2:] >= 4).all()
    assert len({tuple(row) for row in log["views"].tolist()}) > 1


def test_a_side_holds_the_views_of_one_specification_and_a_joint_distribution_pairs_the_two(dataset):
    config = replace(CONFIG, framework="moco_v3", policy="moco_v3", views_per_side=3, joint_area=50.0)
    source = create_source(resolve(config), run_of(dataset))
    batch = next(source.epoch(0))
    assert len(batch.views) == 6 and batch.scene.recipes[0, :, column("spec")].tolist() == [0, 0, 0, 1, 1, 1]
    height, width = (batch.scene.recipes[:, :, column(name)].astype(np.float64) for name in ("height", "width"))
    ratio = np.abs(np.log((height * width)[:, :3] / (height * width)[:, 3:]))
    assert ratio.max() < 0.25, "beta 50: the areas of a pair are nearly equal"
    plain = next(create_source(resolve(replace(config, joint_area=None)), run_of(dataset)).epoch(0)).scene.recipes
    height, width = (plain[:, :, column(name)].astype(np.float64) for name in ("height", "width"))
    assert np.abs(np.log((height * width)[:, :3] / (height * width)[:, 3:])).max() > 0.5


def test_candidates_are_rendered_small_and_kept_whole(dataset):
    config = replace(CONFIG, select="hard", views=5, select_side_px=8)
    batch = next(create_source(resolve(config), run_of(dataset)).epoch(0))
    assert [tuple(view.shape) for view in batch.views] == [(8, 3, 8, 8)] * 5 and batch.scene.sides_px == (16,) * 5


def test_lowest_iou_is_lower_than_chance(dataset):
    def mean_iou(config):
        boxes = (
            next(create_source(resolve(config), run_of(dataset)).epoch(0)).scene.recipes[:, :, BOX].astype(np.float64)
        )
        return overlap(boxes[:, 0], boxes[:, 1]).mean()

    assert mean_iou(replace(CONFIG, select="lowest_iou", views=8)) < 0.5 * mean_iou(CONFIG)


def test_two_views_of_a_pair_framework_are_those_of_before(dataset):
    batch = next(create_source(resolve(CONFIG), run_of(dataset)).epoch(0))
    assert len(batch.views) == 2 and batch.weights is None and create_selector(resolve(CONFIG), run_of(dataset)) is None


def test_weights_by_quality_sum_to_the_batch_and_grow_with_it(dataset):
    views = (torch.zeros(3, 3, 4, 4),) * 2
    quality = torch.tensor([-1.0, 0.0, 1.0])
    batch = ViewBatch(views, None, {}, wait_s=0.0, render_s=0.0, quality=quality)
    weights = weight_by_quality(simsiam(), batch, Stepper.make("cpu")).weights
    torch.testing.assert_close(weights, 3 * quality.softmax(dim=0))
    config = replace(CONFIG, select="stored", weights="quality")
    assert PretrainStage("x").reads(config) == ("images", "pairs", "quality")
    assert create_selector(resolve(config), run_of(dataset)) is weight_by_quality


def test_shares_are_of_all_rows():
    lines = [
        {"lowest_iou": 3, "lowest_iou_rows": 8, "agreement_rows": 8, "agreement_same": 6},
        {"lowest_iou": 5, "lowest_iou_rows": 8},
    ]
    assert shares_of(lines, 16) == {"lowest_iou": 0.5, "hard_agreement": 0.75}
    assert shares_of([{"loss": 1.0}], 16) == {}


STORED_NEEDED = "it needs --select stored, vs2fi, similar, overlap, most_overlap, combined or oracle"
REFUSED = [
    ({"select": "hard", "framework": "vicreg"}, "its loss is one number of a whole batch, so no row has a worst pair"),
    ({"select": "easy", "framework": "barlow_twins"}, "its loss is one number of a whole batch"),
    ({"select": "hard", "framework": "swav"}, "its targets are shares of a whole batch"),
    ({"select": "hard", "views": 2}, "views is 2 and select is 'hard': of 2 views there is one pair"),
    ({"select": "lowest_iou", "views": 1}, "nothing to choose; take at least 3"),
    (
        {"select": "hard", "framework": "dino", "views": 3},
        "views is 3: half of the large views follow each specification",
    ),
    ({"select": "hard", "framework": "dino", "select_side_px": 16}, "dino takes crops of two sides"),
    ({"select": "hard", "small_views": 4}, "small_views and comparisons are of multi-crop, and moco_v3 takes pairs"),
    ({"select": "hard", "select_side_px": 64}, "select_side_px is 64; it must lie in 4 ... 32"),
    ({"select": "hard", "views_per_side": 2}, "with views_per_side 2 and select is 'hard', which gives one pair"),
    ({"select": "lowest_iou", "framework": "dino"}, "which gives pairs, and dino takes several crops"),
    ({"select": "lowest_iou", "alpha": 0.5}, "crops of different images have no overlap"),
    ({"select": "vs2fi", "framework": "swav"}, "which gives pairs, and swav takes several crops"),
    ({"views": 4}, "views is 4 and select is 'random': it needs --select hard, easy or lowest_iou"),
    ({"log_views": 5}, "log_views is 5 and select is 'random': it needs --select hard or easy"),
    ({"select": "hard", "agreement_every": 5}, "it needs --select-side-px or --select-static-colour"),
    ({"select": "vs2fi", "joint_area": 0.0}, "joint_area is 0.0 and select is 'vs2fi'"),
    ({"select": "stored", "crop": "torchvision"}, "crop is torchvision and select is 'stored': it needs views sampled"),
    (
        {"select": "hard", "joint_area": 0.0},
        "any two may become the pair, and only views (0, 1), (2, 3) ... are sampled",
    ),
    ({"select": "lowest_iou", "joint_blur": 0.0}, "select is 'lowest_iou' and joint_blur is joint"),
    ({"crop_box": 1.0}, "crop_box is 1.0; it must lie in 0 ... 1, below 1"),
    ({"generated": "extra", "select": "lowest_iou"}, "which gives one pair; take --select random"),
    ({"generated": "extra", "views_per_side": 2}, "views_per_side is 2 with multi_view 'loss_avg'; leave these out"),
    ({"generated": "extra", "framework": "swav"}, "has several crops already"),
    ({"crop_box": 0.1, "alpha": 0.5}, "boxes are those of the images, and generated ones are others"),
    (
        {"crop_box": 0.1, "crop_box_encoder": "timm:resnet50"},
        "whose weights lie elsewhere; take estimator",
    ),
    ({"crop_box_encoder": "runs/a"}, "crop_box_encoder is runs/a and select is 'random': it needs --crop-box"),
    ({"crop_box": 0.1, "select": "stored"}, "crop_box is 0.1 and select is 'stored': it needs views sampled anew"),
    ({"joint_views": "large"}, "joint_views is 'large' and nothing is joint; add e.g. --joint-area 0"),
    ({"joint_contrast": 101.0}, "joint_contrast is 101.0; it must lie in -100 ... 100"),
    ({"centre_suppression": 0.0}, "centre_suppression is 0.0; it must be a finite number above 0"),
    ({"weights": "quality", "select": "hard"}, "would be weighted for what their pair was not selected by"),
    ({"weights": "quality", "framework": "vicreg"}, "so no row can be weighted"),
    ({"k_sc": 0.9}, "k_sc is 0.9 and select is 'random': it needs --select vs2fi"),
    ({"k_sc": 0.0, "select": "stored"}, "k_sc is 0.0 and select is 'stored': it needs --select vs2fi"),
    ({"filter_share": 0.3, "select": "stored"}, "filter_share is 0.3 and select is 'stored': it needs --select vs2fi"),
    ({"k_al": 3.0, "select": "hard"}, "k_al is 3.0 and select is 'hard': it needs --select vs2fi"),
    ({"pairs": "nope"}, STORED_NEEDED),
    ({"genview": "genview_cs0"}, "genview is genview_cs0 and select is 'random': it needs --alpha above 0"),
    ({"genview": "views", "alpha": 1.0}, "call it genview or genview_NAME"),
    (
        {"quality_column": "quality_cs0", "weights": "quality"},
        STORED_NEEDED,
    ),
    ({"weights": "quality", "select": "stored", "framework": "vicreg"}, "so no row can be weighted"),
    ({"placebo": True}, "placebo is on and select is 'random', which reads nothing of stored pairs"),
    ({"placebo": True, "select": "stored"}, "take --select vs2fi, similar, overlap, most_overlap, combined or oracle"),
    ({"placebo": True, "select": "hard"}, "placebo is on and select is 'hard'"),
    ({"select": "overlap", "alpha": 0.5}, "select is 'overlap' and alpha is 0.5: crops of different images have no"),
    ({"select": "oracle", "alpha": 0.5}, "select is 'oracle' and alpha is 0.5: crops of different images have no"),
    ({"select": "combined", "framework": "dino"}, "which gives pairs, and dino takes several crops"),
    ({"select": "most_overlap", "views": 4}, "views is 4 and select is 'most_overlap': it needs --select hard"),
    ({"select": "overlap", "k_sc": 0.9}, "k_sc is 0.9 and select is 'overlap': it needs --select vs2fi"),
    ({"oracle_share": 0.2}, "oracle_share is 0.2 and select is 'random': it needs --select oracle"),
    ({"oracle_share": 0.0, "select": "oracle"}, "oracle_share is 0.0"),
    ({"oracle_share": 1.5, "select": "oracle"}, "oracle_share is 1.5; it must lie in 0 ... 1"),
    ({"views_per_side": 2, "select": "oracle"}, "which gives one pair; take --select random"),
    ({"multi_view": "dsf", "framework": "simsiam"}, "it needs keys of a momentum encoder"),
    ({"multi_view": "dsf", "decoupled": True}, "has a denominator of its own; leave --decoupled out"),
    ({"multi_view": "dsf", "dim": 8}, "dim is 8; it needs at least 16"),
    ({"multi_view": "fea_avg", "framework": "vicreg"}, "it needs a loss that compares directions"),
    ({"views_per_side": 2, "framework": "dino"}, "dino has several crops already"),
    ({"views_per_side": 2, "select": "vs2fi"}, "which gives one pair; take --select random"),
    ({"dsf_exact": True}, "it needs --multi-view dsf"),
    ({"dsf_shrink": 1.5, "multi_view": "dsf"}, "dsf_shrink is 1.5; it must lie in 0.01 ... 1"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_what_excludes_each_other_is_refused_at_once(options, message):
    with pytest.raises(ConfigError) as refused:
        PretrainConfig(**options)
    assert message in str(refused.value) and "\n" not in str(refused.value)


def policy_of(**options):
    return views_policy(resolve(replace(CONFIG, **options)))


def test_a_policys_other_joint_distributions_stay_and_its_own_of_the_same_parameter_is_replaced(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(
        'base = "simsiam"\n[[joint]]\nparameter = "sigma"\nbeta = 1.0\nprobability = 0.25\n'
        '[[joint]]\nparameter = "area"\nbeta = 2.0\nprobability = 0.25\n'
    )
    blur = JointSpec(parameter="sigma", beta=1.0, probability=0.25)
    assert policy_of(policy=str(path), joint_area=-1.0).joint == (blur, JointSpec(beta=-1.0, probability=0.75))
    every = policy_of(policy=str(path), joint_area=-1.0, joint_mix="all")
    assert every.joint == (blur, JointSpec(beta=-1.0)) and every.joint_mix == "all"


def test_joint_options_share_the_pairs_and_change_every_view():
    mixed = policy_of(policy="simsiam", joint_area=0.0, joint_blur=0.0, centre_suppression=0.6)
    assert [(each.parameter, each.probability) for each in mixed.joint] == [("area", 0.5), ("sigma", 0.5)]
    assert {view.centre for view in mixed.views} == {0.6}
    colours = policy_of(policy="simsiam", joint_brightness=1.0, joint_contrast=0.0, joint_mix="all")
    assert [(each.parameter, each.beta, each.probability) for each in colours.joint] == [
        ("brightness", 1.0, 1.0), ("contrast", 0.0, 1.0),
    ]  # fmt: skip
    assert policy_of(policy="simsiam", crop="torchvision").crop == "torchvision"


def test_crops_are_centred_in_the_box_of_the_encoders_heat_map(dataset):
    options = {"crop_box": 0.9, "crop_box_encoder": "timm:test_vit/random", "policy": "simsiam"}
    source = create_source(resolve(replace(CONFIG, framework="simsiam", **options)), run_of(dataset))
    scene = next(source.epoch(0)).scene
    samples = [source.loader.transform(row) for row in dataset.column("images").rows(0)]
    boxes = source.sampler.boxes(samples)
    assert boxes.shape == (len(samples), 4) and (boxes[:, 2:] < 1).any()
    assert np.array_equal(boxes[::-1], CropBoxes(source.sampler.boxes.encoder, 0.9)(samples[::-1]))
    box = source.sampler.boxes._kept[next(iter(source.sampler.boxes._kept))]
    assert ((box >= 0) & (box <= 1)).all() and scene.recipes.shape[1] == 2


def test_large_or_small_views_alone_are_joint():
    plain = replace(DINO, select="random", joint_area=0.0, views=None, small_views=None, comparisons=None)
    found = {
        each: views_policy(resolve(replace(plain, joint_views=each))).joint[0].specs for each in ("large", "small")
    }
    assert found == {"large": (0, 1), "small": tuple(range(2, 10))}


UNFIT = [
    ({"policy": "tiny", "joint_blur": 0.0}, "sigma is joint without effect, p_blur is 0 in view specification 0"),
    ({"policy": "tiny_jointcrop", "joint_brightness": 0.0}, "its own joint distribution of area on every pair"),
    (
        {"policy": "tiny_jointcrop", "select": "hard"},
        "area of policy 'tiny_jointcrop' is joint: of several views any two",
    ),
    (
        {"policy": "simsiam", "joint_area": 0.0, "joint_views": "large"},
        "has views of one kind here; it needs multi-crop",
    ),
    ({"policy": "simsiam", "joint_area": 0.0, "crop": "torchvision"}, "so no joint distribution of areas can hold"),
    ({"policy": "simsiam", "joint_area": 0.0, "joint_mix": "all"}, "joint_mix is 'all' and 1 is joint"),
    ({"policy": "simclr", "joint_brightness": 0.0, "side_px": 16}, None),
]


@pytest.mark.parametrize(("options", "message"), UNFIT)
def test_changes_that_exclude_each_other_or_the_policy_are_refused_by_name(options, message):
    if message is None:
        assert policy_of(**options).joint[0].parameter == "brightness"
        return
    with pytest.raises(ConfigError) as refused:
        policy_of(**options)
    assert message in str(refused.value) and "\n" not in str(refused.value)


def test_views_of_different_ranges_have_no_joint_distribution(tmp_path):
    path = tmp_path / "uneven.toml"
    path.write_text("[[views]]\narea = [0.2, 1.0]\n[[views]]\narea = [0.4, 1.0]\n[[joint]]\nbeta = 0.0\n")
    with pytest.raises(ConfigError, match=r"0\.2 \.\.\. 1 in view specification 0, 0\.4 \.\.\. 1 in 1"):
        policy_of(policy=str(path))


def test_views_that_do_not_fit_the_framework_or_the_network_are_refused_before_any_work(dataset):
    with pytest.raises(
        ConfigError, match="policy 'dino' gives views of 7 and 16 px, and simsiam compares views of one"
    ):
        views_policy(resolve(replace(CONFIG, policy="dino")))
    with pytest.raises(ConfigError, match="needs one for each view, the first 3 of one side"):
        views_policy(resolve(replace(DINO, policy="simsiam", num_globals=3)))
    with pytest.raises(ConfigError, match="views is 2 and small_views is 8: all of them are used"):
        views_policy(resolve(replace(DINO, views=2, small_views=8)))
    with pytest.raises(
        ConfigError, match="it selects 2 large views, and 8 small ones as policy 'dino_resnet' has them"
    ):
        views_policy(resolve(replace(DINO, small_views=7)))
    vit = PretrainConfig(framework="dino", arch="vit_pico_patch8", batch_size=8, dim=24)
    with pytest.raises(ConfigError, match="views of 14 px are not tiled by the 8 px patches of 'vit_pico_patch8'"):
        plan_stage(PretrainStage("p"), vit, dataset, CPU)
    small = PretrainConfig(arch="vit_pico_patch8", batch_size=8, select="hard", select_side_px=12)
    with pytest.raises(ConfigError, match="views of 12 px are not tiled"):
        plan_stage(PretrainStage("p"), small, dataset, CPU)


def mean_overlaps(config, dataset, *, first=0, second=1):
    """Mean overlap of two views of every image, epoch by epoch."""
    source = create_source(resolve(config), run_of(dataset))
    means = []
    for epoch in range(config.epochs):
        boxes = np.concatenate([batch.scene.recipes[:, :, BOX] for batch in source.epoch(epoch)]).astype(np.float64)
        means.append(overlap(boxes[:, first], boxes[:, second]).mean())
    return means


@pytest.mark.parametrize(("start", "end", "sign"), [(0.1, 0.8, 1), (1.0, 0.1, -1)])
def test_the_ceiling_on_overlaps_moves_while_a_run_trains(dataset, start, end, sign):
    config = replace(CONFIG, policy="moco_v2", max_iou=start, max_iou_end=end)
    first, middle, last = mean_overlaps(config, dataset)
    assert sign * (middle - first) > 0.03 and sign * (last - middle) > 0.03
    assert min(first, last) < 0.1


def test_the_ceiling_moves_over_the_epochs_of_a_run_given_in_steps(dataset):
    per_epoch = create_source(resolve(CONFIG), run_of(dataset)).steps_per_epoch
    config = replace(CONFIG, policy="moco_v2", max_iou=0.1, max_iou_end=0.8)
    in_steps = replace(config, epochs=2, steps=3 * per_epoch)
    assert mean_overlaps(in_steps, dataset) == mean_overlaps(config, dataset)[:2]


def test_a_ceiling_holds_between_the_large_and_between_the_small_views_of_multi_crop(dataset):
    config = replace(DINO, select="random", small_views=None, comparisons=None, max_iou=0.2, policy="dino", side_px=28)
    source = create_source(resolve(config), run_of(dataset))
    boxes = next(source.epoch(0)).scene.recipes[:, :, BOX].astype(np.float64)
    assert all((overlap(boxes[:, j], boxes[:, j + 1]) <= 0.2).all() for j in range(2, 10, 2))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_iou": 0.3, "alpha": 0.5}, "max_iou is 0.3 and alpha is 0.5: crops of different images have no overlap"),
        ({"max_iou": 0.3, "select": "hard"}, "max_iou is 0.3, and of several views any two may be compared"),
        ({"max_iou": 0.3, "alpha": 1.0, "generated": "extra"}, "max_iou is 0.3 and alpha is 1.0"),
        ({"max_iou": 0.3, "generated": "extra"}, "max_iou is 0.3, and of several views any two may be compared"),
        ({"max_iou": 0.3, "select": "vs2fi"}, "max_iou is 0.3 and select is 'vs2fi': it needs views sampled anew"),
        ({"max_iou_end": 0.3}, "max_iou_end is 0.3 and select is 'random': it needs --max-iou"),
        ({"max_iou": 1.5}, "max_iou is 1.5"),
    ],
)
def test_a_ceiling_without_effect_is_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        replace(CONFIG, **options)


def test_a_policy_file_s_ceiling_is_refused_where_an_option_s_is(tmp_path):
    path = tmp_path / "bounded.toml"
    path.write_text('base = "moco_v2"\n[iou]\nstart = 0.3\nend = 0.3\n')
    config = replace(CONFIG, policy=str(path))
    assert views_policy(resolve(config)).iou is not None
    for options, message in (({"alpha": 0.5}, "have no overlap"), ({"select": "hard"}, "of several views any two")):
        with pytest.raises(ConfigError, match=f"policy 'bounded' bounds overlaps.*{message}"):
            views_policy(resolve(replace(config, **options)))


def test_hard_views_of_generated_images_compare_overlaps_within_an_image_only(tmp_path):
    dataset = make_images(tmp_path / "d")
    make_genview(dataset)
    config = replace(CONFIG, select="hard", alpha=0.5, log_views=1, epochs=1)
    numbers = run_stage(PretrainStage("mixed"), config, dataset, CPU).numbers
    log = read_view_log(dataset.path / "runs/mixed")
    source = log["recipes"][:, :, column("source")]
    first, second = np.triu_indices(4, 1)
    across = source[:, first] != source[:, second]
    assert 0 < across.any(axis=1).mean() < 1 and np.array_equal(np.isnan(log["iou"]), across)
    whole = ~across.any(axis=1)
    lowest = np.stack([first, second], axis=1)[np.nan_to_num(log["iou"], nan=2.0).argmin(axis=1)]
    expected = (lowest == log["views"]).all(axis=1)[whole].mean()
    assert numbers["lowest_iou"] == pytest.approx(expected)

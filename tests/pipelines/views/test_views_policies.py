import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from viewkit.pipelines.views.policies import POLICIES, load_policy
from viewkit.pipelines.views.policy import IouCeiling, JointSpec, Policy, ViewSpec
from viewkit.shards.errors import ConfigError


def test_published_numbers() -> None:
    first, second = load_policy("moco_v3").views
    assert (first.area, first.p_blur, first.p_solarize) == ((0.2, 1.0), 1.0, 0.0)
    assert (second.p_blur, second.p_solarize, second.threshold) == (0.1, 0.2, 128 / 255)
    assert load_policy("simclr").views[0].saturation == 0.8
    assert [load_policy("dino").side_of(spec) for spec in range(10)] == [224] * 2 + [96] * 8
    assert load_policy("moco_v1").views[0].grey_first
    assert len(POLICIES) == 28 and all(json.dumps(policy.to_dict()) for policy in POLICIES.values())


def test_weak_views_are_half_as_strong_and_half_as_often() -> None:
    (weak, _), (plain, _) = (load_policy(name).views for name in ("cifar_weak", "cifar"))
    assert weak.area == plain.area == (0.2, 1.0) and weak.p_jitter == plain.p_jitter / 2
    for name in ("brightness", "contrast", "saturation", "hue"):
        assert getattr(weak, name) == getattr(plain, name) / 2


def colours(spec: ViewSpec) -> tuple[float, ...]:
    return (spec.p_jitter, spec.brightness, spec.contrast, spec.saturation, spec.hue, spec.p_grey)


def test_multi_crop_policies_have_the_released_numbers() -> None:
    swav, dino = load_policy("swav"), load_policy("dino")
    assert [spec.area for spec in swav.views] == [(0.14, 1.0)] * 2 + [(0.05, 0.14)] * 6
    assert {(colours(spec), spec.p_blur, spec.p_solarize) for spec in swav.views} == {
        ((0.8, 0.8, 0.8, 0.8, 0.2, 0.2), 0.5, 0.0)
    }
    assert [spec.area for spec in dino.views] == [(0.4, 1.0)] * 2 + [(0.05, 0.4)] * 8
    assert {colours(spec) for spec in dino.views} == {(0.8, 0.4, 0.4, 0.2, 0.1, 0.2)}
    assert [(spec.p_blur, spec.p_solarize) for spec in dino.views[:3]] == [(1.0, 0.0), (0.1, 0.2), (0.5, 0.0)]
    assert [load_policy(name).interpolation for name in ("swav", "dino", "vicreg")] == [
        "bilinear",
        "bicubic",
        "bicubic",
    ]


def test_pairs_of_vicreg_and_simclr_have_the_released_numbers() -> None:
    first, second = load_policy("vicreg").views
    assert first.area == second.area == (0.08, 1.0)
    assert colours(first) == colours(second) == (0.8, 0.4, 0.4, 0.2, 0.1, 0.2)
    assert [(spec.p_blur, spec.p_solarize) for spec in (first, second)] == [(1.0, 0.0), (0.1, 0.2)]
    (spec, other) = load_policy("simclr").views
    assert spec == other and spec.area == (0.08, 1.0) and colours(spec) == (0.8, 0.8, 0.8, 0.8, 0.2, 0.2)
    assert (spec.p_blur, spec.sigma, spec.p_solarize) == (0.5, (0.1, 2.0), 0.0)


def test_small_images_are_blurred_by_genview_and_dsf_and_not_by_jointcrop() -> None:
    for name, p_blur, p_randaugment in (
        ("cifar", 0.0, 0.0), ("stl10", 0.0, 0.0), ("tiny", 0.0, 0.0), ("tiny_jointcrop", 0.0, 0.0),
        ("genview_cifar", 0.5, 0.0), ("genview_tiny", 0.5, 0.0), ("dsf_cifar", 0.5, 0.5),
    ):  # fmt: skip
        spec, other = load_policy(name).views
        assert spec == other and colours(spec) == (0.8, 0.4, 0.4, 0.4, 0.1, 0.2) and spec.area == (0.2, 1.0)
        assert (spec.p_blur, spec.p_randaugment, spec.sigma) == (p_blur, p_randaugment, (0.1, 2.0))
    sides = {name: load_policy(name).side_px for name in ("genview_cifar", "genview_tiny", "stl10", "tiny")}
    assert sides == {"genview_cifar": 32, "genview_tiny": 64, "stl10": 96, "tiny": 64}


@pytest.mark.parametrize("name", ["stl10", "tiny"])
def test_jointcrop_policies_differ_from_their_baselines_by_the_joint_distribution_alone(name: str) -> None:
    joint, baseline = load_policy(f"{name}_jointcrop"), load_policy(name)
    assert joint.joint == (JointSpec(parameter="area", beta=0.0),) and not baseline.joint
    assert replace(joint, name=name, joint=()) == baseline


def test_another_side_scales_blur_and_small_views() -> None:
    small = load_policy("dino").with_side(112)
    assert small.side_of(0) == 112 and small.side_of(5) == 48
    assert small.views[0].sigma == (0.05, 1.0)


def test_a_file_of_the_same_fields_is_a_policy(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'base = "moco_v3"\nside_px = 112\nnum_views = 4\n'
        '[[joint]]\nparameter = "area"\nbeta = -1.0\nprobability = 0.5\n'
        '[[joint]]\nparameter = "sigma"\nprobability = 0.5\n[iou]\nstart = 0.4\nend = 0.6\n'
    )
    policy = load_policy(str(path))
    assert (policy.name, policy.side_px, policy.num_views) == ("mine", 112, 4)
    assert policy.joint == (JointSpec(beta=-1.0, probability=0.5), JointSpec(parameter="sigma", probability=0.5))
    assert policy.iou == IouCeiling(start=0.4, end=0.6)
    assert policy.views[0].sigma == (0.05, 1.0)
    path.write_text("[[views]]\narea = [0.1, 0.5]\n")
    assert load_policy(str(path)).views == (ViewSpec(area=(0.1, 0.5)),)


@pytest.mark.parametrize(
    "text, message",
    [
        ('base = "moco_v9"', "base is 'moco_v9'; needed one of byol, "),
        ("base = [1]", r"base is \[1\]; needed one of byol, "),
        ("[base]", r"base is \{\}; needed one of byol, "),
        ("side_px = 64", "views is missing"),
        ('base = "byol"\nsides = 3', "unknown option 'sides'"),
        ("[[views]]\nare = [0.1, 1.0]", "views 0: unknown option 'are'"),
        ("[[views]]\narea = [0.5, 0.1]", r"area is \[0.5, 0.1\]; its lower end lies above its upper end"),
        ("[[views]]\narea = [0.0, 1.0]", r"area is \[0.0, 1.0\]; both ends must lie above 0, up to 1"),
        ("[[views]]\np_flip = nan", "option 'p_flip' is nan; it takes a finite number"),
        ('base = "byol"\nside_px = 0', "side_px is 0; it must lie in 1 ... 32768"),
        (
            'base = "byol"\n[[joint]]\nspecs = [2]',
            "specs of a joint distribution is 2; there are 2 view specifications",
        ),
        ("a = ", "not a TOML file"),
        ("views = 3", r"views is 3; needed a list of tables, written \[\[views\]\]"),
        ("[[views]]\narea = [0.2]", r"views 0: area is \[0.2\]; needed a list of 2 numbers"),
        ("[[views]]\narea = [0.2, true]", r"area is \[0.2, True\]; needed a list of finite numbers of type float"),
        ("[[views]]\nmagnitude = 3.5", "option 'magnitude' is 3.5, and it takes a value of type int"),
        ('base = "byol"\niou = 3', "option 'iou' is 3"),
        (
            'base = "byol"\ninterpolation = "nearest"',
            "option 'interpolation' is 'nearest'; choose one of bilinear, bicubic",
        ),
        ('base = "byol"\n[[joint]]\nlaws = [0, 1]', "option 'laws' is now 'specs'"),
        ("[[views]]\ncentre = 0.0", "views 0: centre is 0.0; it must be a finite number above 0"),
        ('base = "simclr"\n[[joint]]\n[[joint]]\nparameter = "sigma"', "joint probability adds up to 2"),
        (
            "[[views]]\nbrightness = 1.0\n[[joint]]\nparameter = 'brightness'",
            "brightness is 1 in view specification 0; needed below 1",
        ),
    ],
)
def test_a_mistake_in_a_file_names_field_and_value(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message) as caught:
        load_policy(str(path))
    assert "bad.toml" in str(caught.value)


def test_unknown_names_and_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="policy is 'mocov3'; needed a TOML file or one of byol, "):
        load_policy("mocov3")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_policy(str(tmp_path / "none.toml"))
    with pytest.raises(ConfigError, match="views is empty"):
        Policy(name="x", views=())


def test_a_value_of_another_type_is_named_too(tmp_path: Path) -> None:
    # In a process of its own: here the shape checker would complain first.
    path = tmp_path / "bad.toml"
    path.write_text('[[views]]\np_flip = "half"\n')
    code = f"from viewkit.pipelines.views.policies import load_policy; load_policy({str(path)!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "views 0: option 'p_flip' is 'half', and it takes a value of type float" in done.stderr

"""The published policies, as data, and `load_policy`.

Where a paper and its code differ, or a paper is silent, the choice stands beside the policy. All blur is a true
Gaussian with the sampled sigma (the libraries cut it at 23 taps or approximate it by boxes).
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from viewkit.pipelines.views.policy import JointSpec, Policy, ViewSpec, read_policy
from viewkit.shards.errors import ConfigError

CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)
CIFAR_MEAN = (0.4914, 0.4822, 0.4465)
CIFAR_STD = (0.2470, 0.2435, 0.2616)
TINY_MEAN = (0.480, 0.448, 0.398)
TINY_STD = (0.277, 0.269, 0.282)
DSF_CIFAR_STD = (0.2023, 0.1994, 0.2010)
"""Of the released code; a mean over images of each one's deviation, and so below `CIFAR_STD`, that of all pixels."""

# He et al. 2020: grey comes before the jitter, which is always on; no blur.
MOCO_V1 = ViewSpec(p_jitter=1.0, saturation=0.4, hue=0.4, grey_first=True)
# JointCrop's table 1 has joint blur with MoCo v1: with MoCo v2's blur here, which the paper does not say.
MOCO_V1_BLUR = replace(MOCO_V1, p_blur=0.5)
# Chen et al. 2020b, and Chen & He 2021 (SimSiam) with the same numbers.
MOCO_V2 = ViewSpec(saturation=0.4, p_blur=0.5)
# Grill et al. 2020, appendix B: the asymmetric pair that MoCo v3, VICReg and GenView took over.
BYOL_1 = ViewSpec(area=(0.08, 1.0), p_blur=1.0)
BYOL_2 = replace(BYOL_1, p_blur=0.1, p_solarize=0.2)
# Chen et al. 2020a with strength 1, and Hard View Selection's SimCLR. The paper does not say how the crop is resized;
# bilinear here, as in the PyTorch versions.
SIMCLR = ViewSpec(area=(0.08, 1.0), brightness=0.8, contrast=0.8, saturation=0.8, hue=0.2, p_blur=0.5)
# Chen et al. 2021: crops from 0.2 for ResNet, from 0.08 for ViT.
MOCO_V3_1, MOCO_V3_2 = (replace(spec, area=(0.2, 1.0)) for spec in (BYOL_1, BYOL_2))
# Caron et al. 2020, 2021: two large views and small ones of 96 px. SwAV's colours are SimCLR's; DINO's are BYOL's, with
# small views from 0.05 to 0.4 and large ones from 0.4 (Hard View Selection, table 7).
SWAV_LARGE = replace(SIMCLR, area=(0.14, 1.0))
SWAV_SMALL = replace(SIMCLR, area=(0.05, 0.14), side_px=96)
DINO_1, DINO_2 = (replace(spec, area=(0.4, 1.0)) for spec in (BYOL_1, BYOL_2))
DINO_SMALL = replace(BYOL_1, area=(0.05, 0.4), p_blur=0.5, side_px=96)
# DINO's released settings for ResNet-50 cut at 0.14, as SwAV does.
DINO_RESNET_1, DINO_RESNET_2 = (replace(spec, area=(0.14, 1.0)) for spec in (BYOL_1, BYOL_2))
DINO_RESNET_SMALL = replace(DINO_SMALL, area=(0.05, 0.14))
# Small images: JointCrop's baselines on STL-10 and Tiny-ImageNet have no blur (sec. 4.2).
SMALL = ViewSpec(saturation=0.4)
# AdaInf's weak augmentation for generated images on CIFAR: jitter half as often and half as strong, crops from 0.2.
SMALL_WEAK = replace(SMALL, p_jitter=0.4, brightness=0.2, contrast=0.2, saturation=0.2, hue=0.05)
# GenView's on CIFAR and Tiny-ImageNet do (appendix A): crops from 0.2, colour distortion of strength 0.4 with
# probability 0.8, blur with 0.5. Strength is read as MoCo v2's jitter; grey and flips, which it leaves out, are kept;
# sigma stays 0.1 to 2 px, whatever the side, as in the libraries.
GENVIEW_SMALL = replace(SMALL, p_blur=0.5)
# DSF on CIFAR: the same with RandAugment after the crop (released code; the paper gives no probabilities).
DSF_CIFAR = replace(GENVIEW_SMALL, p_randaugment=0.5)
# Images of several photographs side by side (`pack mosaic:`): a crop shows a tenth to a half of one of four, so that
# pairs without a shared photograph are about as frequent as pairs with one. Colours change little.
MOSAIC = ViewSpec(area=(0.02, 0.12), brightness=0.2, contrast=0.2, saturation=0.2, hue=0.05)
JOINT_CROP = (JointSpec(parameter="area", beta=0.0),)

_ALL = (
    Policy(name="moco_v1", views=(MOCO_V1, MOCO_V1)),
    Policy(name="moco_v1_blur", views=(MOCO_V1_BLUR, MOCO_V1_BLUR)),
    Policy(name="moco_v2", views=(MOCO_V2, MOCO_V2)),
    Policy(name="moco_v3", views=(MOCO_V3_1, MOCO_V3_2)),
    Policy(name="moco_v3_vit", views=(BYOL_1, BYOL_2)),
    Policy(name="simclr", views=(SIMCLR, SIMCLR)),
    Policy(name="byol", views=(BYOL_1, BYOL_2), interpolation="bicubic"),
    # VS-2FI appendix E.2: "following BYOL", for every framework.
    Policy(name="strengthened", views=(BYOL_1, BYOL_2)),
    Policy(name="simsiam", views=(MOCO_V2, MOCO_V2)),
    Policy(name="vicreg", views=(BYOL_1, BYOL_2), interpolation="bicubic"),
    Policy(name="swav", views=(SWAV_LARGE,) * 2 + (SWAV_SMALL,) * 6, num_views=8),
    Policy(name="dino", views=(DINO_1, DINO_2) + (DINO_SMALL,) * 8, num_views=10, interpolation="bicubic"),
    Policy(
        name="dino_resnet",
        views=(DINO_RESNET_1, DINO_RESNET_2) + (DINO_RESNET_SMALL,) * 8,
        num_views=10,
        interpolation="bicubic",
    ),
    # Zhang et al. 2025, appendix D: 2 x 160 + 4 x 96 px, with the areas of `dino`.
    Policy(
        name="dino_160_96",
        views=(DINO_1, DINO_2) + (DINO_SMALL,) * 4,
        side_px=160,
        num_views=6,
        interpolation="bicubic",
    ),
    # GenView: MoCo v3's views with CLIP's normalisation, because its quality encoder sees the same tensors. The
    # released code computes the blur and throws it away; here it is applied.
    Policy(name="genview_resnet", views=(MOCO_V3_1, MOCO_V3_2), mean=CLIP_MEAN, std=CLIP_STD),
    Policy(name="genview_vit", views=(BYOL_1, BYOL_2), mean=CLIP_MEAN, std=CLIP_STD),
    Policy(name="genview_simsiam", views=(MOCO_V2, MOCO_V2), mean=CLIP_MEAN, std=CLIP_STD),
    Policy(name="dsf", views=(BYOL_1, BYOL_2)),
    Policy(name="dsf_cifar", views=(DSF_CIFAR, DSF_CIFAR), side_px=32, mean=CIFAR_MEAN, std=DSF_CIFAR_STD),
    Policy(name="genview_cifar", views=(GENVIEW_SMALL,) * 2, side_px=32, mean=CIFAR_MEAN, std=CIFAR_STD),
    Policy(name="genview_tiny", views=(GENVIEW_SMALL,) * 2, side_px=64, mean=TINY_MEAN, std=TINY_STD),
    Policy(name="mosaic", views=(MOSAIC, MOSAIC), side_px=32),
    Policy(name="cifar", views=(SMALL, SMALL), side_px=32, mean=CIFAR_MEAN, std=CIFAR_STD),
    Policy(name="cifar_weak", views=(SMALL_WEAK, SMALL_WEAK), side_px=32, mean=CIFAR_MEAN, std=CIFAR_STD),
    # STL-10's images are ImageNet's at 96 px, and have its mean and std here.
    Policy(name="stl10", views=(SMALL, SMALL), side_px=96),
    Policy(name="stl10_jointcrop", views=(SMALL, SMALL), side_px=96, joint=JOINT_CROP),
    Policy(name="tiny", views=(SMALL, SMALL), side_px=64, mean=TINY_MEAN, std=TINY_STD),
    Policy(name="tiny_jointcrop", views=(SMALL, SMALL), side_px=64, mean=TINY_MEAN, std=TINY_STD, joint=JOINT_CROP),
)
POLICIES: Mapping[str, Policy] = MappingProxyType({policy.name: policy for policy in _ALL})


def load_policy(name_or_path: str) -> Policy:
    """A named policy, or one read from a TOML file (anything that ends in ``.toml``).

    Raises `ConfigError` for an unknown name and for whatever is wrong in the file.
    """
    if name_or_path in POLICIES:
        return POLICIES[name_or_path]
    if name_or_path.endswith(".toml"):
        return read_policy(Path(name_or_path), POLICIES)
    raise ConfigError(f"policy is {name_or_path!r}; needed a TOML file or one of {', '.join(sorted(POLICIES))}")

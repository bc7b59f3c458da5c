"""Options that change what a policy samples: joint distributions, positions, and the crop's own distribution."""

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

from viewkit.pipelines.engine.config import Group
from viewkit.pipelines.engine.ranges import check_above_zero, check_within
from viewkit.pipelines.views.policy import CropRule, JointMix, JointParameter, JointSpec, Policy
from viewkit.shards.errors import ConfigError

AUGMENTATION = Group("Augmentation")
PARAMETERS: dict[str, JointParameter] = {
    "joint_area": "area", "joint_blur": "sigma", "joint_brightness": "brightness", "joint_contrast": "contrast",
}  # fmt: skip
"""Option -> what it makes joint."""


@dataclass(frozen=True, kw_only=True)
class SamplingOptions:
    """What is changed of the policy; None everywhere: the policy as it is."""

    CHANGES: ClassVar[tuple[str, ...]] = (*PARAMETERS, "joint_mix", "joint_views", "centre_suppression", "crop")

    joint_area: Annotated[
        float | None, "JointCrop: beta of the joint distribution of a pair's crop areas, e.g. 0", AUGMENTATION
    ] = None
    joint_blur: Annotated[
        float | None, "JointBlur: beta of the joint distribution of a pair's blur sigmas, e.g. 0", AUGMENTATION
    ] = None
    joint_brightness: Annotated[
        float | None, "JointColor-b: beta of the joint distribution of a pair's brightness factors", AUGMENTATION
    ] = None
    joint_contrast: Annotated[
        float | None, "JointColor-c: beta of the joint distribution of a pair's contrast factors", AUGMENTATION
    ] = None
    joint_mix: Annotated[
        JointMix | None,
        "several joint distributions: each pair uses one, those given here in equal shares (JointCrop, appendix F), or "
        "all of them (default: the policy's, mostly one)",
        AUGMENTATION,
    ] = None
    joint_views: Annotated[
        Literal["large", "small"] | None,
        "multi-crop: only the large or only the small views are joint (JointCrop, appendix D; default: both)",
        AUGMENTATION,
    ] = None
    centre_suppression: Annotated[
        float | None,
        "ContrastiveCrop: crop positions follow Beta(a, a) with this a, below 1 away from the centre (0.6 on ImageNet, "
        "0.1 on CIFAR)",
        AUGMENTATION,
    ] = None
    crop: Annotated[
        CropRule | None,
        "areas kept exactly, with the nearest aspect ratio that fits; or torchvision's RandomResizedCrop, as published "
        "baselines have it (default: the policy's, mostly exact)",
        AUGMENTATION,
    ] = None

    def check_sampling(self) -> None:
        """`ConfigError` for values out of range and for options that say nothing alone."""
        check_within(-100, 100, **{name: getattr(self, name) for name in PARAMETERS})
        check_above_zero(centre_suppression=self.centre_suppression)
        check_within(0, 1, centre_suppression=self.centre_suppression)
        if self.joint_views is not None and not self.betas():
            raise ConfigError(f"joint_views is '{self.joint_views}' and nothing is joint; add e.g. --joint-area 0")

    def betas(self) -> dict[JointParameter, float]:
        """What is made joint here, with its beta."""
        given = {parameter: getattr(self, name) for name, parameter in PARAMETERS.items()}
        return {parameter: beta for parameter, beta in given.items() if beta is not None}

    def changed(self, policy: Policy, num_large: int | None = None) -> Policy:
        """The policy with these changes; joint distributions of other parameters that it has stay.

        num_large: the first so many of its specifications are the large ones of multi-crop. Raises `ConfigError` for
        changes that exclude each other or would have no effect.
        """
        joint, mix = self._joint(policy, num_large), self.joint_mix or policy.joint_mix
        if self.joint_mix is not None and len(joint) < 2:
            raise ConfigError(f"joint_mix is '{mix}' and {len(joint) or 'nothing'} is joint; name two to mix, or none")
        views = policy.views
        if self.centre_suppression is not None:
            views = tuple(replace(view, centre=self.centre_suppression) for view in views)
        return replace(policy, views=views, joint=joint, joint_mix=mix, crop=self.crop or policy.crop)

    def _joint(self, policy: Policy, num_large: int | None) -> tuple[JointSpec, ...]:
        betas = self.betas()
        if not betas:
            return policy.joint
        kept = tuple(spec for spec in policy.joint if spec.parameter not in betas)
        share = 1.0
        if (self.joint_mix or policy.joint_mix) == "one":
            share = (1 - sum(spec.probability for spec in kept)) / len(betas)
            if share <= 1e-9:
                raise ConfigError(
                    f"policy '{policy.name}' uses its own joint distribution of {kept[0].parameter} on every pair, so "
                    f"none is left for {', '.join(betas)}; add --joint-mix all, or take another policy"
                )
        specs = self._specs(policy, num_large)
        added = (JointSpec(parameter=name, beta=beta, probability=share, specs=specs) for name, beta in betas.items())
        return (*kept, *added)

    def _specs(self, policy: Policy, num_large: int | None) -> tuple[int, ...]:
        """Indices of the specifications that are joint; none: all."""
        if self.joint_views is None:
            return ()
        if num_large is None or num_large >= len(policy.views):
            raise ConfigError(
                f"joint_views is '{self.joint_views}', and policy '{policy.name}' has views of one kind here; it needs "
                "multi-crop, e.g. --framework dino"
            )
        large = self.joint_views == "large"
        return tuple(range(num_large) if large else range(num_large, len(policy.views)))

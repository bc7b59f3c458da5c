"""Policies of more candidate views than are trained on."""

from dataclasses import replace

from viewkit.pipelines.views.policy import Policy


def with_candidates(policy: Policy, *, num_large: int, num_small: int, large_laws: int) -> Policy:
    """The policy with `num_large` views by its first `large_laws` laws in turn, then `num_small` by the others.

    Joint laws stay with the views that the laws they name have become.
    """
    total = len(policy.views)
    origin = [j % large_laws for j in range(num_large)]
    origin += [large_laws + j % (total - large_laws) for j in range(num_small)]
    joint = tuple(
        replace(law, laws=tuple(j for j, old in enumerate(origin) if old in law.laws)) for law in policy.joint
    )
    return replace(policy, views=tuple(policy.views[old] for old in origin), num_views=len(origin), joint=joint)

"""How 2 m views of a row are compared, m of each side: by losses, by features, or as distributions.

Loss_avg is what a framework does by itself. Two views are the case m = 1, where Loss_avg and Fea_avg are the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from jaxtyping import Float
from torch import Tensor

from viewkit.pipelines.losses.dsf import dsf_info_nce
from viewkit.pipelines.losses.multi_view import mean_of_views
from viewkit.pipelines.models.queue import Queue
from viewkit.pipelines.training.framework import Framework, Outputs

MultiView = Literal["loss_avg", "fea_avg", "dsf"]


def set_multi_view(framework: Framework, method: MultiView, *, shrink: float = 0.95, exact: bool = False) -> None:
    """Have `framework` compare its views by `method` from now on. shrink, exact: of DSF, as in `dsf_info_nce`.

    Fea_avg takes cosines of the sides' means, so these count by their directions; appendix B of the paper has their
    dot product.
    """
    if method != "loss_avg":
        framework.merge = merge_sides
    if method == "dsf":
        framework.compare = CompareDistributions(shrink, exact)


def merge_sides(outputs: Sequence[Outputs]) -> tuple[Outputs, Outputs]:
    """Each half as if it were one view: the means of its unit vectors. A role that no view of it has stays None."""
    half = len(outputs) // 2
    return _mean(outputs[:half]), _mean(outputs[half:])


def _mean(outputs: Sequence[Outputs]) -> Outputs:
    queries = [each.query for each in outputs if each.query is not None]
    keys = [each.key for each in outputs if each.key is not None]
    return Outputs(z=None, query=mean_of_views(queries) if queries else None, key=mean_of_views(keys) if keys else None)


@dataclass(frozen=True)
class CompareDistributions:
    """DSF: InfoNCE of the divergence between the two sides' distributions (Jeon et al. 2026, eq. 9-12).

    Every direction that has a query and a key is added: both in MoCo v3, whose negatives are the batch's other keys,
    the first side's queries alone in MoCo v1 and v2, whose negatives are the queue. No temperature, no factor 2 tau.
    """

    shrink: float = 0.95
    exact: bool = False

    def __call__(self, framework: Framework, outputs: Sequence[Outputs]) -> Float[Tensor, " n"]:
        one, other = outputs
        queue = getattr(framework, "queue", None)
        losses = [
            dsf_info_nce(
                query,
                key,
                queue=queue.rows if isinstance(queue, Queue) else None,
                shrink=self.shrink,
                exact=self.exact,
            )
            for query, key in ((one.query, other.key), (other.query, one.key))
            if query is not None and key is not None
        ]
        return sum(losses[1:], start=losses[0])

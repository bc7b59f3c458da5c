"""Two sides of m views as one view each, and DSF's comparison of the two (see `multi_view`)."""

from collections.abc import Sequence
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from viewkit.pipelines.losses.multi_view import dsf_info_nce, mean_of_views
from viewkit.pipelines.training.framework import Framework, Outputs


def merge_sides(outputs: Sequence[Outputs]) -> tuple[Outputs, Outputs]:
    """Each half as if it were one view: the means of its unit vectors. A role that no view of it has stays None.

    Fea_avg takes cosines of these means, so they count by their directions; appendix B of the paper has their dot
    product.
    """
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
    the first side's queries alone in MoCo v1 and v2, whose negatives are the queue. No factor 2 tau.
    shrink, exact, tau, plain_kappa: as in `dsf_info_nce`.
    """

    shrink: float = 0.95
    exact: bool = False
    tau: float = 1.0
    plain_kappa: bool = False

    def __call__(self, framework: Framework, outputs: Sequence[Outputs]) -> Float[Tensor, " n"]:
        one, other = outputs
        losses = [
            dsf_info_nce(
                query,
                key,
                queue=framework.negatives(),
                shrink=self.shrink,
                exact=self.exact,
                tau=self.tau,
                plain_kappa=self.plain_kappa,
            )
            for query, key in ((one.query, other.key), (other.query, one.key))
            if query is not None and key is not None
        ]
        return sum(losses[1:], start=losses[0])

"""Were the histograms counted on views like those of the pairs that are scored with them?"""

from viewkit.pipelines.pairs.same_policy import alike, follows
from viewkit.pipelines.views.policy import Policy
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import RefusedError
from viewkit.shards.identity import Identity


def check_counted_policy(stage: str, dataset: Dataset, policy: Policy) -> None:
    """`RefusedError` unless the histograms' views were sampled as the candidates are: other crops have other
    similarities."""
    identity = dataset.artifact("histograms").identity
    if not follows(identity, policy):
        theirs = identity.config.get("policy", "another")
        raise RefusedError(
            f"{stage}: policy is '{policy.name}', and the histograms' views were sampled by '{theirs}'; rerun 'viewkit "
            f"histograms --policy {policy.name}', or score by --policy {theirs}"
        )
    check_counted_by_chance(stage, identity)


def check_counted_like(stage: str, dataset: Dataset, pairs: str) -> None:
    """`RefusedError` unless the histograms' views were sampled as the scored pairs of a column were."""
    scored, counted = dataset.column(pairs).identity, dataset.artifact("histograms").identity
    if not alike(scored, counted):
        ours, theirs = (each.config.get("policy", "another") for each in (scored, counted))
        raise RefusedError(
            f"{stage}: the views of column '{pairs}' and the histograms' were sampled by different policies ('{ours}' "
            f"against '{theirs}'); rerun 'viewkit histograms' with the column's --policy, or score the pairs again"
        )
    check_counted_by_chance(stage, counted)


def check_counted_by_chance(stage: str, histograms: Identity) -> None:
    """`RefusedError` unless each counted view followed a specification by chance, as every scored one does."""
    pipelines = histograms.config.get("pipelines")
    if pipelines != "random":
        raise RefusedError(
            f"{stage}: the histograms were counted with --pipelines {pipelines}, and scored views follow the policy's "
            "specifications by chance; rerun 'viewkit histograms --pipelines random'"
        )

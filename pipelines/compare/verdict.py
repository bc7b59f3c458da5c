"""Rules that turn numbers into one of four words; fixed beforehand, printed with every comparison."""

from dataclasses import dataclass

from viewkit.pipelines.compare.statistics import Paired, seeds_needed, smallest_p

HELPS, HURTS = "helps", "hurts"
NO_DIFFERENCE = "no clear difference"
UNDECIDABLE = "not decidable at this size"
WORTH, NOT_WORTH = "worth its cost", "not worth its cost"


@dataclass(frozen=True, kw_only=True)
class Rules:
    """alpha: probability of a false alarm among all probes of an arm. power: with which "could have been found" holds.

    matters: difference in points that one would act on.
    """

    alpha: float = 0.05
    power: float = 0.8
    matters: float = 1.0

    @property
    def min_seeds(self) -> int:
        """The fewest pairs of which all can win without that being likelier than alpha by chance: 6 for 5 %."""
        n = 2
        while smallest_p(n) > self.alpha:
            n += 1
        return n

    def sentences(self) -> list[str]:
        """The rules for people, in the order in which they are asked."""
        n = self.min_seeds
        points = f"{self.matters:g} point{'' if self.matters == 1 else 's'}"
        return [
            f"fewer than {n} seeds are {UNDECIDABLE}: all of {n - 1} seeds win by chance with probability "
            f"{smallest_p(n - 1):.4g}, above {self.alpha:g}",
            f"an arm {HELPS} ({HURTS}) where the paired difference over seeds is above (below) 0 by Student's test at "
            f"{self.alpha:g}, corrected for the number of probes (Holm)",
            f"there is {NO_DIFFERENCE} where the {100 * (1 - self.alpha):g} % t interval holds no difference of "
            f"{points} or more, which is what matters here",
            f"everything else is {UNDECIDABLE}, and needs as many seeds as find a difference of {points} with "
            f"probability {self.power:g}",
            f"an arm is {WORTH} where it helps against the reference trained longer by the same cost",
        ]


@dataclass(frozen=True)
class Verdict:
    """word: one of the four. needs: seeds that would decide, where it is `UNDECIDABLE`."""

    word: str
    needs: int | None = None

    def __str__(self) -> str:
        return self.word if self.needs is None else f"{self.word} (needs about {self.needs} seeds)"


def judge(found: Paired, p_holm: float, rules: Rules, *, probes: int = 1) -> Verdict:
    """p_holm: `found.p_t` corrected for all probes of the arm, of which there are so many."""
    if found.n < rules.min_seeds or found.low is None or found.high is None or found.sd is None:
        return Verdict(UNDECIDABLE, _needed(found, rules, probes))
    if p_holm <= rules.alpha and found.mean != 0:
        return Verdict(HELPS if found.mean > 0 else HURTS)
    if -rules.matters < found.low and found.high < rules.matters:
        return Verdict(NO_DIFFERENCE)
    return Verdict(UNDECIDABLE, _needed(found, rules, probes))


def judge_cost(against_control: Verdict) -> Verdict:
    """Whether an arm is worth its cost, by its verdict against the control that was trained longer for it."""
    if against_control.word == UNDECIDABLE:
        return against_control
    return Verdict(WORTH if against_control.word == HELPS else NOT_WORTH)


def _needed(found: Paired, rules: Rules, probes: int) -> int:
    least = max(rules.min_seeds, found.n + 1)
    if found.sd is None:
        return least
    return seeds_needed(found.sd, rules.matters, alpha=rules.alpha / probes, power=rules.power, at_least=least)

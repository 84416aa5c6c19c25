"""The result types that statistics share, and Wilson's interval."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import stats

Kind = Literal["interval", "at least", "at most", "open", "fixed"]


class Interval(NamedTuple):
    """An estimate with the ends of its confidence interval, all in one unit."""

    estimate: float
    low: float
    high: float


class Undefined(NamedTuple):
    """A statistic that these data do not define, and why. Never a NaN, never a 0."""

    reason: str


@dataclass(frozen=True, slots=True)
class Bounded:
    """An estimate with an interval, or with the one end that the data give it.

    ``kind`` says which: ``interval`` has two finite ends; ``at least`` has only ``low`` and
    ``at most`` only ``high``, the other end is infinite and ``estimate`` is the ridge's choice,
    not the data's; ``open`` has neither; ``fixed`` was not estimated and is 0.
    """

    estimate: float
    low: float
    high: float
    kind: Kind = "interval"

    def __float__(self) -> float:
        return self.estimate

    @property
    def text(self) -> str:
        """The number as it may be printed: a bound is printed as a bound."""
        match self.kind:
            case "interval":
                return f"{self.estimate:.2f} [{self.low:.2f}, {self.high:.2f}]"
            case "at least":
                return f"at least {self.low:.2f}"
            case "at most":
                return f"at most {self.high:.2f}"
            case "fixed":
                return f"{self.estimate:g} (not estimated)"
            case "open":
                return "cannot be placed by these data"


def wilson(rate: float, count: float, critical: float) -> tuple[float, float]:
    """Wilson's score interval of a rate seen over ``count`` (effective) trials.

    Args:
        rate: The observed rate, in [0, 1].
        count: Trials behind it, > 0; need not be whole.
        critical: Quantile of the reference distribution, such as 1.96.

    Returns:
        Low and high end, in [0, 1]; never of zero width.

    References:
        Wilson 1927, Probable inference, the law of succession, and statistical inference.
    """
    square = critical**2
    centre = (rate + square / (2 * count)) / (1 + square / count)
    half = critical * np.sqrt(rate * (1 - rate) / count + square / (4 * count**2))
    half /= 1 + square / count
    low = 0.0 if rate == 0 else max(0.0, centre - half)  # exact at the ends, not 1e-17 off
    high = 1.0 if rate == 1 else min(1.0, centre + half)
    return float(low), float(high)


def normal_critical(level: float) -> float:
    """Two-sided quantile of the normal distribution."""
    return float(stats.norm.ppf((1 + level) / 2))


def t_critical(level: float, units: int) -> float:
    """Two-sided quantile of Student's t for the mean of ``units`` independent units."""
    return t_quantile(level, units - 1)


def t_quantile(level: float, freedom: float) -> float:
    """Two-sided quantile of Student's t with ``freedom`` degrees, which need not be whole."""
    return float(stats.t.ppf((1 + level) / 2, freedom))


def standard_error(means: Float[np.ndarray, " prompt"]) -> float:
    """Standard error of the mean of independent units; rounding dust counts as 0."""
    error = float(means.std(ddof=1)) / float(np.sqrt(len(means)))
    return error if error > 1e-12 * max(1.0, float(np.abs(means).max())) else 0.0

"""Statistics of preference. NumPy in, NumPy out; no files, no clocks, no globals."""

from recast_eval.stats.davidson import Davidson, Difference, davidson
from recast_eval.stats.intervals import Bounded, Interval, Undefined, wilson
from recast_eval.stats.multiple import benjamini_hochberg, holm
from recast_eval.stats.paired import MatchedRuns, PairedDifference, matched_runs, paired_difference
from recast_eval.stats.signs import SignCounts, mcnemar, sign_counts, sign_flip_test, sign_test
from recast_eval.stats.winrate import (
    WinRate,
    WorstCase,
    decisive_win_rate,
    win_rate,
    worst_case,
)

__all__ = [
    "Bounded",
    "Davidson",
    "Difference",
    "Interval",
    "MatchedRuns",
    "PairedDifference",
    "SignCounts",
    "Undefined",
    "WinRate",
    "WorstCase",
    "benjamini_hochberg",
    "davidson",
    "decisive_win_rate",
    "holm",
    "matched_runs",
    "mcnemar",
    "paired_difference",
    "sign_counts",
    "sign_flip_test",
    "sign_test",
    "wilson",
    "win_rate",
    "worst_case",
]

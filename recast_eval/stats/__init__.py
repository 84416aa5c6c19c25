"""Statistics of preference. NumPy in, NumPy out; no files, no clocks, no globals."""

from recast_eval.stats.adjusted import AdjustedWinRate, Slope, adjusted_win_rate
from recast_eval.stats.agreement import Agreement, agreement, krippendorff_alpha
from recast_eval.stats.bands import (
    Band,
    Selection,
    choose_and_report,
    simultaneous_band,
    split_prompts,
)
from recast_eval.stats.davidson import Davidson, Difference, davidson
from recast_eval.stats.intervals import Bounded, Interval, Undefined, wilson
from recast_eval.stats.multiple import benjamini_hochberg, holm
from recast_eval.stats.paired import MatchedRuns, PairedDifference, matched_runs, paired_difference
from recast_eval.stats.power import Need, detectable_rate, pairs_needed
from recast_eval.stats.signs import SignCounts, mcnemar, sign_counts, sign_flip_test, sign_test
from recast_eval.stats.winrate import (
    WinRate,
    WorstCase,
    decisive_win_rate,
    win_rate,
    worst_case,
)

__all__ = [
    "AdjustedWinRate",
    "Agreement",
    "Band",
    "Bounded",
    "Davidson",
    "Difference",
    "Interval",
    "MatchedRuns",
    "Need",
    "PairedDifference",
    "Selection",
    "SignCounts",
    "Slope",
    "Undefined",
    "WinRate",
    "WorstCase",
    "adjusted_win_rate",
    "agreement",
    "benjamini_hochberg",
    "choose_and_report",
    "davidson",
    "decisive_win_rate",
    "detectable_rate",
    "holm",
    "krippendorff_alpha",
    "matched_runs",
    "mcnemar",
    "paired_difference",
    "pairs_needed",
    "sign_counts",
    "sign_flip_test",
    "sign_test",
    "simultaneous_band",
    "split_prompts",
    "wilson",
    "win_rate",
    "worst_case",
]

"""The evaluation toolkit: score, judge, audit, report."""

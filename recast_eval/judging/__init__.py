"""Pairwise and pointwise judging by language models and juries."""

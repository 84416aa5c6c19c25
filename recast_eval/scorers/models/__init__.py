"""Scorers, a file each: a ``SPEC`` with its card and its factory."""

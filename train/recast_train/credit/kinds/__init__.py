"""Kinds of credit, a file each."""

"""Commands of ``recast-eval``: a file, and in it a function, of the same name each."""

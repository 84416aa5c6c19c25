"""Commands of ``recast-train``: a file, and in it a function, of the same name each."""

"""Statistics of preference. NumPy in, NumPy out; no files, no clocks, no globals."""

"""ReCAST: which reward counts at which denoising step. Pure NumPy, float64."""

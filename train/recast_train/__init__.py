"""The training core: ReCAST, MARBLE, RebRL."""

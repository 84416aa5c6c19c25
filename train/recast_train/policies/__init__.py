"""Models that draw: SD3 and masked tokens, behind one interface."""

"""How K rewards become one gradient, a file each."""

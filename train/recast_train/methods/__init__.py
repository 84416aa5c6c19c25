"""RL methods, a file each."""

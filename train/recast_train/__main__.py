"""``python -m recast_train``: what ``torchrun`` and ``accelerate launch`` start."""

from recast_train.cli import main

main()

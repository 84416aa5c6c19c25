"""The starter: a small real SD3, pre-trained on captioned cards."""

"""Figures: numbers first (``*_info``), then ink (``draw_*``), a file each."""

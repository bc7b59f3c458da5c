"""Backbones with exits, heads, momentum copies and checkpoints."""

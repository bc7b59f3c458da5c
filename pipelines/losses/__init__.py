"""Contrastive and non-contrastive losses, one per file."""

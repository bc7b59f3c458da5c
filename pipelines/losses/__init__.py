"""Contrastive and non-contrastive losses, one a file."""

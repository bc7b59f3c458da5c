"""Self-supervised frameworks, one a file; they know nothing of how pairs are selected."""

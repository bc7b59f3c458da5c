"""Stage `generate`: foreground share, noise level and one generated image a row."""

WRITES = {"genview": "generate", "fidelity": "fidelity", "generator": "generator"}

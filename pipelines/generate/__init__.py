"""Stage `generate`: foreground share, noise level and one generated image a row."""

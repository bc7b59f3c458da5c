"""`viewkit export`: a run's encoder for other programs."""

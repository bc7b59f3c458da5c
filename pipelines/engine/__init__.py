"""Stages, and the one runner of them all: what a stage says of itself, configs, workers, resuming."""

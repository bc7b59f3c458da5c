"""Weights that users bring: generators' cards and folders, hub ids pinned to a commit, safetensors files."""

"""Frozen encoders by name: images or views in, features and tokens out."""

"""Stages `pack`: images from folders, tars and bundled photographs into the column `images`; `label`: their labels."""

WRITES = {"images": "pack SOURCE", "labels": "label"}

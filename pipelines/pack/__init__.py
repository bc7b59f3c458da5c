"""Stage `pack`: images from folders, tars and bundled photographs into the column `images`."""

WRITES = {"images": "pack SOURCE"}

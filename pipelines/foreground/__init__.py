"""What is foreground: the first principal component of patch tokens, its sign, and the pictures that show it."""

WRITES = {"foreground": "foreground", "foreground_views": "quality"}

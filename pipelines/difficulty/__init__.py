"""Stage `difficulty`: how hard the pairs of an augmentation policy are for an encoder."""

WRITES = {"difficulty": "difficulty"}

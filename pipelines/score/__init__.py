"""Stage `score`: candidate views of every image and the indicators of every pair."""

WRITES = {"pairs": "score"}
ALSO_WRITES = {"pairs": "rescore"}

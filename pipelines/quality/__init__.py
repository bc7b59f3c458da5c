"""Stage `quality`: GenView's quality of every stored pair."""

WRITES = {"quality": "quality"}

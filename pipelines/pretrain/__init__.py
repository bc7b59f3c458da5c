"""Stage `pretrain`: the thin trainer that reads pairs."""

WRITES = {"runs/NAME": "pretrain"}

"""Stage `pretrain`: the thin trainer that reads pairs."""

"""The name that a column of pairs has unless another is given; free of torch, so that configs can use it."""

PAIRS = "pairs"

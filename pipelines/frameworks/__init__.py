"""Self-supervised frameworks: one file each, which holds its card and builds it; `table` names them."""

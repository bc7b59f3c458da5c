"""What frameworks train: a forward pass and a loss under their heads. Frameworks that work alike share one."""

"""Generators of views, one file each, behind the interface in `interface`."""

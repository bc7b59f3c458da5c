"""Generators of views, one file each, behind the face in `face`."""

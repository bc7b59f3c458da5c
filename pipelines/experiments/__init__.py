"""Published experiments, one TOML file each: whole chains with their options, runs and published numbers."""

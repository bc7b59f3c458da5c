"""From recipes to pixels."""

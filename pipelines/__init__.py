"""The stages, and the maths they bind to shards."""

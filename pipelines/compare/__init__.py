"""Stage `compare`: does a way of making pairs help? Paired runs, statistics, costs, verdicts."""

WRITES = {"compare/NAME": "compare"}

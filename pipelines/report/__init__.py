"""Stage `report`: one HTML page about a dataset and its runs."""

WRITES = {"report": "report"}

"""Stage `histograms`: the distributions of similarities that the indicators are read off (VS-2FI, eq. 2 and 6)."""

WRITES = {"histograms": "histograms"}

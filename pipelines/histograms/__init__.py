"""Stage `histograms`: the laws that turn similarities into indicators (VS-2FI, eq. 2 and 6)."""

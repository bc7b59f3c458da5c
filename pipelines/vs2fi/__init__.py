"""View Selection via 2-Fold Indicators: the maths and the artifact that stages `histograms` and `score` share."""

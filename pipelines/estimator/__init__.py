"""Stage `estimator`: MoCo v3 with one linear exit a block (VS-2FI, eq. 4)."""

WRITES = {"estimator": "estimator"}

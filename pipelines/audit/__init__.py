"""Stage `audit`: do VS-2FI's indicators find bad pairs? Measured on stored pairs, against facts they do not know."""

WRITES = {"audit": "audit"}

"""Stage `evaluate`: accuracy of a run's encoder, frozen or fine-tuned."""

WRITES = {"runs/NAME/eval": "evaluate"}

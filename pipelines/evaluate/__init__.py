"""Stage `evaluate`: accuracy of a run's encoder, frozen or fine-tuned."""

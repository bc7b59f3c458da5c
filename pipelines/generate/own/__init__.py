"""Stage `generator`: a generator of one's own, trained on the dataset's images without labels or downloads."""

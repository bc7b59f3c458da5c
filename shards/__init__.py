"""Datasets on disk: columns of WebDataset shards with receipts."""

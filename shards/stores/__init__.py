"""Datasets in object stores: a local cache folder stands for a dataset, a mirror keeps it and the store together."""

"""Datasets in object stores: a local cache folder stands for the dataset, and a mirror keeps it and the store together."""

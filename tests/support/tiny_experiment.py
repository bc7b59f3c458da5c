"""Experiments of seconds, as TOML: two short trainings on a few small images."""

TRAININGS = """
[pretrain]
framework = "simclr"
arch = "resnet10_narrow"
steps = 2
warmup_epochs = 0.0
batch_size = 8
hidden = 16
dim = 8
[runs.one]
[runs.two]
seed = 1
[evaluate]
probes = "knn"
"""
"""Two runs and their evaluation."""

EXPERIMENT = f"""
title = "Random pairs on small blobs"
data = "small images in class folders"
[pack]
labels = "folders"
rows_per_shard = 8
{TRAININGS}
[[published]]
run = "one"
metric = "knn20"
value = 50.0
"""
"""From packing to a published number to compare with."""

COMPARISON = """
title = "Small blobs, compared"
[pack]
labels = "folders"
rows_per_shard = 8
[pretrain]
framework = "simclr"
arch = "resnet10_narrow"
batch_size = 8
hidden = 16
dim = 8
warmup_epochs = 0.0
[runs.random]
[runs.joint]
joint_area = 0.0
[compare]
seeds = 2
lengths = [2, 3]
[evaluate]
probes = "knn"
k = "5"
[report]
"""
"""Two arms, two lengths, two seeds."""

"""What the estimator and pretrain share: loop, optimisers, schedules, checkpoints, probes."""

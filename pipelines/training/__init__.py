"""What the estimator and pretrain share: loop, step, preparation, optimisers, schedules, monitoring."""

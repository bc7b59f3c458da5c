"""Where the time of `generate` goes: into the networks; decoding and encoding of pictures lie in other threads."""

import gc
import json
import time
from dataclasses import replace

import pytest
from reference.genview_pipeline import tiny_pipeline
from reference.genview_worlds import CPU, discs_dataset

from viewkit.pipelines.engine.run import run_stage
from viewkit.pipelines.foreground.stage import ForegroundStage
from viewkit.pipelines.generate.config import GenerateConfig
from viewkit.pipelines.generate.stage import GenerateStage

CONFIG = GenerateConfig(generator="unclip", sample=30, steps=10, render_px=64, output_px=64, sign="+")


@pytest.mark.slow
def test_almost_all_of_the_time_is_spent_in_the_networks(tmp_path, monkeypatch):
    dataset = discs_dataset(tmp_path / "discs", images=16)
    weights = tmp_path / "weights"
    tiny_pipeline().save_pretrained(weights)
    run_stage(ForegroundStage(weights, 8), CONFIG.foreground(), dataset, CPU)
    monkeypatch.setattr(time, "perf_counter_ns", time.thread_time_ns)  # what others do on the machine does not count
    gc.collect()
    gc.disable()
    try:
        trace = tmp_path / "trace.json"
        run_stage(GenerateStage(weights, 8), CONFIG, dataset, replace(CPU, profile=str(trace)))
    finally:
        gc.enable()
    events = [each for each in json.loads(trace.read_bytes())["traceEvents"] if each["ph"] == "X"]
    shards = [each for each in events if each["name"] == "shard"]
    main = {each["tid"] for each in shards}
    assert len(main) == 1
    networks, end = 0.0, min(each["ts"] for each in shards)  # one lies inside another where latents are decoded
    for each in sorted(events, key=lambda each: each["ts"]):
        if each["name"] in ("embed", "generate") and each["tid"] in main and each["ts"] >= end:
            networks, end = networks + each["dur"], each["ts"] + each["dur"]
    share = networks / sum(each["dur"] for each in shards)
    assert 0.95 <= share < 1, share
    assert {each["tid"] for each in events if each["name"] in ("encode", "read")}.isdisjoint(main)

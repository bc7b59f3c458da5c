"""A foreground in parts: every image in one of them, and the same bytes whoever does them."""

import shutil
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from dealt_crew import deal, travelled
from hypothesis import given, settings
from hypothesis import strategies as st
from small_datasets import CPU, contents
from vs2fi_world import make_estimator, make_images

from viewkit.pipelines.draw.config import DrawConfig
from viewkit.pipelines.draw.stage import DrawStage
from viewkit.pipelines.engine.run import run_stage
from viewkit.pipelines.engine.seeds import smallest
from viewkit.pipelines.foreground import samples
from viewkit.pipelines.foreground.config import ForegroundConfig
from viewkit.pipelines.foreground.covariance import COARSE, FINE, Moments
from viewkit.pipelines.foreground.passes import EncoderFacts, TokensFound
from viewkit.pipelines.foreground.samples import ImageSample, Tokens, ViewSample, cut
from viewkit.pipelines.foreground.stage import ForegroundStage, ViewsForegroundStage
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import DataError

INDEXED = ForegroundConfig(encoder="estimator", sample=20, index=True)
PLAIN = replace(INDEXED, index=False)
VIEWS = ForegroundConfig(encoder="estimator", sample=20, sign="+")


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """A dataset on which everything was fitted by one process."""
    dataset = make_images(tmp_path_factory.mktemp("fitted"), count=24)
    make_estimator(dataset)
    run_stage(DrawStage(), DrawConfig(rounds=1, candidates="original", policy="simclr"), dataset, CPU)
    run_stage(ForegroundStage(batch_size=3), INDEXED, dataset, CPU)
    run_stage(ViewsForegroundStage(), VIEWS, dataset, CPU)
    return dataset


@pytest.fixture
def unfitted(alone, tmp_path):
    without = shutil.ignore_patterns("foreground", "foreground_views", ".locks")
    return Dataset(shutil.copytree(alone.path, tmp_path / "dataset", ignore=without))


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.slow), 2, 3])
def test_whole_images_in_parts_give_the_bytes_of_one_process(alone, unfitted, monkeypatch, workers):
    monkeypatch.setattr(samples, "IMAGES_PER_PART", 5)
    hired = deal(monkeypatch, workers)
    run_stage(ForegroundStage(batch_size=3), INDEXED, unfitted, CPU)
    assert contents(unfitted.path / "foreground") == contents(alone.path / "foreground")
    first = [part for part in hired[0].parts if hasattr(part, "rows")]
    assert [list(part.rows) for part in first] == [list(range(at, at + 6)) for at in range(0, 24, 6)]
    assert [part.shown for part in hired[0].parts[len(first) :]] == [16, 10, 4, 0]


@pytest.mark.parametrize("workers", [2, *(pytest.param(count, marks=pytest.mark.slow) for count in (1, 3))])
def test_stored_views_in_parts_give_the_bytes_of_one_process(alone, unfitted, monkeypatch, workers):
    monkeypatch.setattr(samples, "IMAGES_PER_PART", 5)
    hired = deal(monkeypatch, workers)
    run_stage(ViewsForegroundStage(), VIEWS, unfitted, CPU)
    assert contents(unfitted.path / "foreground_views") == contents(alone.path / "foreground_views")
    assert [len(part.items) for part in hired[0].parts] == [16, 4, 16, 4]  # whole batches, in both passes


def test_parts_hold_every_image_once_and_the_sample_is_marked(alone):
    images = alone.column("images")
    sample = {images.place_of[key] for key in smallest(images.keys(), 20)}
    indexed = ImageSample(alone, 20, batch_size=3, index=alone.path / "index.npy")
    for is_alone in (True, False):
        parts = indexed.tokens_parts(is_alone=is_alone)
        assert [place for part in parts for place in part.items] == list(range(24))
        fitted = [place for part in parts for place, is_in in zip(part.items, part.fitted, strict=True) if is_in]
        assert set(fitted) == sample and len(fitted) == 20
        assert {part.index is None for part in parts} == {not is_alone}  # workers write no file
    plain = ImageSample(alone, 20, batch_size=3, index=None).tokens_parts(is_alone=False)
    assert [place for part in plain for place in part.items] == sorted(sample)
    assert all(part.fitted.all() for part in plain)


def test_only_keys_that_gave_tokens_are_looked_at_again_and_the_first_are_shown(alone):
    sample = ViewSample(alone, 20)
    found = Tokens(sample)
    found.present[:] = [place % 2 == 0 for place in range(20)]
    parts = sample.squares_parts(found, np.ones(4), is_alone=False)
    assert [key for part in parts for key in part.items] == sample.keys[::2]
    assert [part.shown for part in parts] == [16]
    whole = ImageSample(alone, 20, batch_size=1, index=None)
    whole.part_rows = 6
    found = Tokens(whole)
    found.present[4:] = True
    assert [part.shown for part in whole.squares_parts(found, np.ones(4), is_alone=False)] == [16, 14, 8, 2]


@given(st.integers(0, 300), st.integers(1, 70), st.integers(1, 70))
def test_a_cut_holds_every_number_once_in_order_and_whole_runs(count, size, other):
    for asked in (size, other, None):
        parts = cut(count, asked)
        assert [number for part in parts for number in part] == list(range(count))
        assert all(len(part) == (asked or count) for part in parts[:-1])


@settings(max_examples=20)
@given(st.integers(1, 40), st.lists(st.integers(1, 4), min_size=1, max_size=6), st.randoms())
def test_moments_of_parts_that_travelled_are_the_exact_sum_of_all_images(seed, cuts, order):
    images = torch.randn(sum(cuts), 4, 3, generator=torch.Generator().manual_seed(seed)) * 10
    parts = []
    for part in images.split(cuts):
        moments = Moments(3)
        for tokens in part:
            moments.add(tokens)
        parts.append(travelled(moments))
    order.shuffle(parts)
    merged = Moments(3)
    for moments in parts:
        merged.merge(moments)
    naive = np.full((4, 4), Fraction(0))
    for tokens in images:
        x = torch.cat([tokens, torch.ones(4, 1)], dim=1)
        for place, value in np.ndenumerate((x.mT @ x).double().numpy()):
            coarse = Fraction(round(value / COARSE)) * Fraction(COARSE)
            naive[place] += coarse + round((Fraction(value) - coarse) / Fraction(FINE)) * Fraction(FINE)
    exact = [[Fraction(a) + Fraction(b) for a, b in zip(*row, strict=True)]
             for row in zip(merged.coarse.tolist(), merged.fine.tolist(), strict=True)]  # fmt: skip
    assert exact == naive.tolist() and merged.images == sum(cuts)


def test_workers_with_other_weights_are_refused(alone):
    found = Tokens(ViewSample(alone, 20))
    facts = EncoderFacts({"weights": "a"}, (2, 2), (0.0,) * 3, (1.0,) * 3)
    part = TokensFound(range(16), np.zeros(16, bool), 0, None, None, facts)
    found.add(part)
    other = replace(part, rows=range(16, 20), present=np.zeros(4, bool))
    with pytest.raises(DataError, match="the workers opened different encoders; give every node the same files"):
        found.add(replace(other, encoder=facts._replace(fingerprint={"weights": "b"})))
    found.add(other)


@pytest.mark.slow
def test_a_plain_fit_in_parts_has_the_statistics_of_one_process(alone, unfitted, monkeypatch, tmp_path):
    reference = Dataset(shutil.copytree(unfitted.path, tmp_path / "reference"))
    run_stage(ForegroundStage(batch_size=3), PLAIN, reference, CPU)
    monkeypatch.setattr(samples, "IMAGES_PER_PART", 5)
    deal(monkeypatch, 2)
    run_stage(ForegroundStage(batch_size=3), PLAIN, unfitted, CPU)
    assert contents(unfitted.path / "foreground") == contents(reference.path / "foreground")

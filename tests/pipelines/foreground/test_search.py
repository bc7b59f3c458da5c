"""Noise on embeddings, exact search, preprocessing and padding."""

import inspect
import tracemalloc

import numpy as np
import pytest
import torch
from PIL import Image
from reference import reference_genview as reference

from viewkit.pipelines.encoders.preprocess import Preprocess
from viewkit.pipelines.foreground.index import Embeddings, block_rows, fits, nearest_other, open_index, resident
from viewkit.pipelines.generate.noising import add_noise, squared_cosine


def test_squared_cosine_has_the_published_values():
    abar = squared_cosine()
    np.testing.assert_allclose(abar, reference.squared_cosine(), rtol=1e-6)
    expected = [0.999959, 0.971576, 0.897763, 0.785632, 0.645988]
    np.testing.assert_allclose(abar[[0, 100, 200, 300, 400]], expected, atol=1e-6)


def test_noise_keeps_unit_variance_and_takes_one_level_a_row():
    rng = torch.Generator().manual_seed(0)
    z, noise = torch.randn(3, 50_000, generator=rng), torch.randn(3, 50_000, generator=rng)
    noised = add_noise(z, torch.tensor([0, 400, 999]), noise, squared_cosine())
    np.testing.assert_allclose(noised.var(dim=1), 1, atol=0.02)
    cosines = torch.cosine_similarity(noised, z)
    np.testing.assert_allclose(cosines, [1.0, 0.804, 0.0], atol=0.01)


@pytest.mark.parametrize("block", [1, 7, 64, 1000])
def test_block_search_equals_brute_force(block):
    rng = np.random.default_rng(block)
    index = rng.standard_normal((100, 6)).astype(np.float32)
    index /= np.linalg.norm(index, axis=1, keepdims=True)
    index[rng.integers(100, size=8)] = 0
    own = rng.integers(100, size=30)
    queries = index[own] + 0.1 * rng.standard_normal((30, 6)).astype(np.float32)
    found, product = nearest_other(torch.from_numpy(queries), index, torch.from_numpy(own), block)
    assert found.tolist() == reference.nearest_other(queries, index, own)
    assert (found != torch.from_numpy(own)).all()
    np.testing.assert_allclose(product, (queries * index[found]).sum(axis=1), rtol=1e-5)
    as_tensor = nearest_other(torch.from_numpy(queries), torch.from_numpy(index), torch.from_numpy(own), block)
    assert torch.equal(as_tensor[0], found) and torch.equal(as_tensor[1], product)


def test_an_index_moves_to_a_gpu_where_half_of_the_free_memory_suffices():
    index = np.zeros((4, 3), np.float32)
    assert resident(index, "cpu") is index
    assert fits(50, 100) and not fits(51, 100)


@pytest.mark.gpu
def test_an_index_that_lies_on_the_gpu_gives_the_same_neighbours():
    rows = torch.nn.functional.normalize(torch.randn(500, 8, generator=torch.Generator().manual_seed(0)), dim=1)
    index = resident(rows.numpy(), "cuda")
    assert isinstance(index, torch.Tensor) and index.is_cuda
    own = torch.arange(20)
    found, _ = nearest_other(rows[:20].cuda(), index, own, 64)
    assert found.tolist() == reference.nearest_other(rows[:20].numpy(), rows.numpy(), own.numpy())


class Watched:
    """An index that notes how many rows are asked for at once."""

    def __init__(self, rows):
        self.rows = rows
        self.asked = []

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, part):
        found = self.rows[part]
        self.asked.append(len(found))
        return found


def test_search_holds_one_block_in_memory_however_large_the_index(tmp_path):
    rows, width = 60_000, 64  # 15 MB
    path = tmp_path / "index.npy"
    made = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(rows, width))
    made[:] = np.random.default_rng(0).standard_normal((rows, width), dtype=np.float32)
    made.flush()
    block = block_rows(width, num_bytes=2**20)
    watched = Watched(open_index(path))
    queries = torch.from_numpy(np.array(made[:8]))
    del made
    tracemalloc.start()
    try:
        search = inspect.unwrap(nearest_other)  # without the check that the index is an array
        found, _ = search(queries, watched, torch.arange(8), block)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (max(watched.asked), sum(watched.asked)) == (block, rows)
    assert peak < 3 * 2**20
    assert len(found) == 8


def test_embeddings_hold_a_few_blocks_in_memory(tmp_path):
    rows, width = 60_000, 64
    tracemalloc.start()
    try:
        embeddings = Embeddings(rows, width, tmp_path / "index.npy")
        embeddings.block = block_rows(width, num_bytes=2**20)
        for row in range(0, rows, 70):
            embeddings.put(row, torch.full((width,), float(row)))
        mean, std = embeddings.statistics()
        embeddings.to_index(mean, std)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10 * 2**20  # numpy's copies of a block in fp64, not the 15 MB of all rows


def test_search_finds_nothing_where_there_is_no_other():
    found, product = nearest_other(torch.ones(1, 3), np.ones((1, 3), np.float32), torch.tensor([0]), 10)
    assert found.tolist() == [-1]
    assert product.tolist() == [-torch.inf]


def test_index_rows_are_standardised_units_and_missing_rows_stay_zero(tmp_path):
    rng = np.random.default_rng(0)
    raw = rng.normal(5, 3, (40, 6)).astype(np.float32)
    embeddings = Embeddings(41, 6, tmp_path / "index.npy")
    embeddings.block = 7
    for i, row in enumerate(raw):
        embeddings.put(i, torch.from_numpy(row))
    mean, std = embeddings.statistics()
    np.testing.assert_allclose(mean, raw.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(std, raw.std(axis=0), rtol=1e-5)
    embeddings.to_index(mean, std)
    stored = np.load(tmp_path / "index.npy")
    z = (raw - raw.mean(axis=0)) / raw.std(axis=0)
    np.testing.assert_allclose(stored[:40], z / np.linalg.norm(z, axis=1, keepdims=True), atol=1e-5)
    assert not stored[40].any()


@pytest.mark.parametrize("size", [(40, 61), (32, 32), (97, 33), (20, 300)])
def test_preprocess_equals_pillow_step_by_step(size):
    image = np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8)
    see = Preprocess(32, 32, (0.5, 0.4, 0.3), (0.2, 0.3, 0.4))
    height, width = size
    short = min(size)
    resized = Image.fromarray(image).resize((32 * width // short, 32 * height // short), Image.Resampling.BICUBIC)
    left, top = (resized.width - 32) // 2, (resized.height - 32) // 2
    crop = np.asarray(resized.crop((left, top, left + 32, top + 32)))
    np.testing.assert_array_equal(see.crop(image), crop)
    expected = (crop / 255 - [0.5, 0.4, 0.3]) / [0.2, 0.3, 0.4]
    np.testing.assert_allclose(see(image).permute(1, 2, 0), expected, atol=1e-6)


@pytest.mark.parametrize("size", [(1, 5000), (3000, 2), (1, 1)])
def test_preprocess_takes_any_shape(size):
    image = np.zeros((*size, 3), np.uint8)
    assert Preprocess(64, 32, (0.5,) * 3, (0.5,) * 3)(image).shape == (3, 32, 32)

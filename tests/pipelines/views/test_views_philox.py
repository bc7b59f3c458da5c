import numpy as np

from viewkit.pipelines.views.philox import philox, uniforms


def test_blocks_are_those_of_numpy_bit_for_bit() -> None:
    rng = np.random.default_rng(0)
    keys = rng.integers(0, 2**64, (300, 2), dtype=np.uint64)
    counters = rng.integers(0, 2**64 - 1, (300, 4), dtype=np.uint64)
    found = philox(counters + np.array([1, 0, 0, 0], dtype=np.uint64), keys)
    for row in range(300):
        generator = np.random.Philox(key=keys[row], counter=counters[row])
        assert (found[row] == generator.random_raw(4)).all()


def test_known_answer_of_the_paper_for_zeros_and_ones() -> None:
    # Random123's known-answer file, philox 4x64 10.
    zeros = philox(np.zeros((1, 4), dtype=np.uint64), np.zeros((1, 2), dtype=np.uint64))[0]
    assert [f"{word:016x}" for word in zeros.tolist()] == [
        "16554d9eca36314c",
        "db20fe9d672d0fdc",
        "d7e772cee186176b",
        "7e68b68aec7ba23b",
    ]


def test_uniforms_are_those_of_numpy() -> None:
    generator = np.random.Philox(key=7)
    words = np.random.Philox(key=7).random_raw(8).astype(np.uint64)
    assert (uniforms(words) == np.random.Generator(generator).random(8)).all()

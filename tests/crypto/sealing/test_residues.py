"""The server's kernel against Python integers."""

import numpy as np
import pytest

from covey.crypto.sealing.residues import BLOCK, WORTH_A_THREAD, accumulate, as_words, survey

PRIMES = [65537, 18014398509309953, 1152921504606830593]  # 17, 54 and 60 bits


@pytest.mark.parametrize("q", PRIMES)
@pytest.mark.parametrize("columns", [1, BLOCK - 1, BLOCK + 1, WORTH_A_THREAD + 5])
@pytest.mark.parametrize("n", [1, 3, 4, 5, 9])
def test_sums_are_sums_mod_q(q, columns, n):
    rng = np.random.default_rng(n)
    inputs = [as_words(memoryview(rng.integers(0, q, columns, dtype=np.uint64).tobytes())) for _ in range(n)]
    inputs[0] = as_words(memoryview(np.full(columns, q - 1, dtype=np.uint64).tobytes()))  # the largest residue
    members = [np.flatnonzero(rng.random(3) < 0.7).tolist() for _ in range(n)]
    members[0] = [0, 2]
    sums = np.full((3, columns), q - 1, dtype=np.uint64)
    accumulate(sums, inputs, members, 9, q)
    for i in {0, columns // 2, columns - 1}:
        for j in range(3):
            expected = q - 1 + sum(int(x[i]) for x, m in zip(inputs, members, strict=True) if j in m)
            assert int(sums[j, i]) == expected % q
    assert int(sums.max()) < q


def test_nothing_to_add_changes_nothing():
    sums = np.arange(6, dtype=np.uint64).reshape(2, 3)
    accumulate(sums, [], [], 4, 97)
    assert sums.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_survey_by_hand():
    assert [int(x) for x in survey(np.array([5, 7, 1], dtype=np.uint64))] == [7, 13, 5 + 14 + 3]
    top = 2**64 - 1
    assert [int(x) for x in survey(np.array([top, 2], dtype=np.uint64))] == [top, 1, (top + 4) % 2**64]


def test_words_are_not_copied_when_aligned():
    data = np.arange(4, dtype=np.uint64).tobytes()
    words = as_words(memoryview(data))
    assert not words.flags.owndata and not words.flags.writeable
    shifted = as_words(memoryview(b"x" + data)[1:])
    assert shifted.flags.aligned and shifted.tolist() == [0, 1, 2, 3]

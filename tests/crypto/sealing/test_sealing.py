"""What every sealing scheme must do: the same tests for plain, CKKS and BFV."""

import json
import multiprocessing
import pickle
import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.crypto.sealing import SCHEMES, sealing
from covey.crypto.sealing.mixing import write_words
from covey.crypto.sealing.residues import as_words
from covey.crypto.sealing.sealing import LABEL_BYTES, Label, mix, mixer, sealer, whole_counts
from covey.errors import CoveyError
from covey.messages import copied, decode, encode, same, size
from support.patience import PATIENCE

KEYS = {name: sealing.generate_keys(name, bound=8.0, terms=64) for name in SCHEMES}
SEALERS = {name: sealer(keys) for name, keys in KEYS.items()}
ENCRYPTED = [name for name in SCHEMES if name != "none"]
every_scheme = pytest.mark.parametrize("name", SCHEMES)
every_cipher = pytest.mark.parametrize("name", ENCRYPTED)


def vectors(n, d, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, (n, d)).astype(np.float32)


@every_scheme
@settings(max_examples=8, deadline=None)
@given(st.integers(1, 9000), st.integers(0, 2**32 - 1))
def test_open_undoes_seal(name, length, seed):
    vector = 8 * vectors(1, length, seed)[0]
    opened = SEALERS[name].open(SEALERS[name].seal(vector))
    assert opened.shape == (length,) and opened.dtype == np.float64
    assert np.abs(opened - vector).max() < 1e-7


@every_scheme
def test_mixing_is_multiplication_by_the_membership_matrix(name):
    """More clients than one window of the mixer, and a cluster that nobody joins."""
    plain = vectors(37, 5000)
    member = np.random.default_rng(1).random((4, 37)) < 0.6
    member[2] = False
    sums = mix(SEALERS[name].public(), member, (SEALERS[name].seal(v) for v in plain))
    opened = np.array([SEALERS[name].open(s) for s in sums])
    assert np.abs(opened - member.astype(float) @ plain.astype(float)).max() < 2e-6
    assert np.array_equal(opened[2], np.zeros(5000))
    assert [Label.read(s).terms for s in sums] == member.sum(1).tolist()


@every_scheme
def test_indicators_travel_with_the_model_and_come_back_as_counts(name):
    true = np.array([0, 0, 1, 2, 1, 1])
    sets = [[0, 1], [0], [1, 2], [0, 2], [1], [0, 1, 2]]
    models = vectors(6, 4095)
    server = mixer(SEALERS[name].public(), 3, 4095 + 3)
    for model, own, members in zip(models, true, sets, strict=True):
        server.add(SEALERS[name].seal(np.concatenate([model, np.eye(3)[own]])), members)
    counts = np.array([whole_counts(SEALERS[name].open(s)[4095:]) for s in server.sums()])
    # row a: who of each true cluster shows a
    assert counts.tolist() == [[2, 1, 1], [1, 3, 0], [0, 2, 1]]


@every_scheme
def test_sums_are_again_sealed_vectors(name):
    """Partial sums of several hosts can be added: mixing is associative."""
    plain = vectors(6, 100)
    public, blobs = SEALERS[name].public(), [SEALERS[name].seal(v) for v in plain]
    left, right = mix(public, [[1, 1, 1]], blobs[:3]), mix(public, [[1, 1, 1]], blobs[3:])
    total = mix(public, [[1, 1]], left + right)[0]
    assert Label.read(total).terms == 6
    if name != "none":  # residues are added exactly; float32 rounds
        assert total == mix(public, np.ones((1, 6)), blobs)[0]
    assert np.allclose(SEALERS[name].open(total), plain.sum(0, dtype=float), atol=1e-6)


@every_scheme
def test_a_mixer_goes_on_after_its_sums_were_read(name):
    blob = SEALERS[name].seal([1.0, 2.0])
    server = mixer(SEALERS[name].public(), 2, 2)
    server.add(blob, [0])
    assert np.allclose(SEALERS[name].open(server.sums()[0]), [1, 2])
    server.add(blob, [0, 1])
    assert np.allclose([SEALERS[name].open(s) for s in server.sums()], [[2, 4], [1, 2]])


@every_scheme
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_refused(name, bad):
    with pytest.raises(CoveyError, match="expected finite values"):
        SEALERS[name].seal([0.0, bad])


@every_cipher
def test_values_out_of_range_are_refused(name):
    assert np.allclose(SEALERS[name].open(SEALERS[name].seal([8.0, -8.0])), [8, -8])
    with pytest.raises(CoveyError, match=r"8\.01.*within ±8"):
        SEALERS[name].seal([8.01])


@every_cipher
def test_the_largest_sum_that_is_allowed_does_not_wrap(name):
    """64 vectors, every float at the bound with the same sign: the worst case of the capacity."""
    for sign in (1.0, -1.0):
        blob = SEALERS[name].seal(np.full(4096, sign * 8.0))
        server = mixer(SEALERS[name].public(), 1, 4096)
        for _ in range(64):
            server.add(blob, [0])
        assert np.abs(SEALERS[name].open(server.sums()[0]) - sign * 512).max() < 1e-5
    with pytest.raises(CoveyError, match="More than 64"):
        server.add(blob, [0])


@every_scheme
@pytest.mark.parametrize("shape", [(0,), (2, 2), ()])
def test_only_flat_vectors_are_sealed(name, shape):
    with pytest.raises(CoveyError, match="flat vector"):
        SEALERS[name].seal(np.zeros(shape))


@every_scheme
def test_wrong_length_is_refused(name):
    server = mixer(SEALERS[name].public(), 2, 10)
    with pytest.raises(CoveyError, match="of 11 floats, expected 10"):
        server.add(SEALERS[name].seal(np.zeros(11)), [0])


@every_scheme
@pytest.mark.parametrize("members", [[2], [-1], [0, 0]])
def test_wrong_members_are_refused(name, members):
    server = mixer(SEALERS[name].public(), 2, 3)
    with pytest.raises(CoveyError, match="Identity set"):
        server.add(SEALERS[name].seal(np.zeros(3)), members)


@every_scheme
def test_damage_is_found_by_server_and_client_and_leaves_the_sums_alone(name):
    good = SEALERS[name].seal(vectors(1, 5000)[0])
    server = mixer(SEALERS[name].public(), 1, 5000)
    server.add(good, [0])
    before = server.sums()
    word = LABEL_BYTES + 8 * 100
    swapped = good[:word] + good[word + 8 : word + 16] + good[word : word + 8] + good[word + 16 :]
    flipped = bytearray(good)
    flipped[word] ^= 1  # stays a valid residue: only the digest can tell
    high = bytearray(good)
    high[word : word + 8] = b"\xff" * 8
    damaged = [good[:-1], good + b"\0", good[:LABEL_BYTES], good[:10], b"", swapped, bytes(flipped), bytes(high)]
    damaged += [good[:i] + bytes([good[i] ^ 1]) + good[i + 1 :] for i in range(LABEL_BYTES)]
    for blob in damaged:
        with pytest.raises(CoveyError):
            server.add(blob, [0])
        with pytest.raises(CoveyError):
            SEALERS[name].open(blob)
    assert server.sums() == before


@every_cipher
def test_another_key_or_other_parameters_are_told_apart(name):
    blob = SEALERS[name].seal([1.0])
    same_parameters = sealer(sealing.generate_keys(name, bound=8.0, terms=64))
    other_parameters = sealer(sealing.generate_keys(name, bound=4.0, terms=64))
    other_scheme = next(SEALERS[n] for n in SCHEMES if n not in ("none", name))
    for stranger, words in (
        (same_parameters, "another key"),
        (other_parameters, "other"),
        (other_scheme, "expected '"),
    ):
        with pytest.raises(CoveyError, match=words):
            stranger.open(blob)
        with pytest.raises(CoveyError, match=words):
            mixer(stranger.public(), 1, 1).add(blob, [0])


@every_cipher
def test_opening_with_a_wrong_key_is_noticed_even_under_a_forged_label(name):
    blob = SEALERS[name].seal(np.zeros(4096))
    stranger = sealer(sealing.generate_keys(name, bound=8.0, terms=64))
    forged = write_words(as_words(memoryview(blob)[LABEL_BYTES:]), Label.read(stranger.seal([0.0])), 4096, 1)
    with pytest.raises(CoveyError, match="exceeds"):
        stranger.open(forged)


@every_scheme
def test_keys_survive_storage_and_equal_keys_open_each_others_vectors(name):
    copy = sealer(bytes(bytearray(KEYS[name])))
    assert np.allclose(copy.open(SEALERS[name].seal([0.5, -3.0])), [0.5, -3.0], atol=1e-6)
    assert copy.public() == SEALERS[name].public()


@every_cipher
def test_the_server_gets_parameters_and_no_key(name):
    public = json.loads(SEALERS[name].public())
    assert {"secret", "encryption"}.isdisjoint(public)
    assert len(SEALERS[name].public()) < 400
    with pytest.raises(CoveyError, match="must not hold"):
        mixer(KEYS[name], 1, 1)


@every_cipher
def test_damaged_keys_are_refused(name):
    keys = json.loads(KEYS[name])
    for field in ("secret", "encryption"):
        with pytest.raises(CoveyError):
            sealer(json.dumps(keys | {field: keys[field][: len(keys[field]) // 8 * 4]}).encode())
    with pytest.raises(CoveyError, match="not a client's keys"):
        sealer(SEALERS[name].public())
    with pytest.raises(CoveyError, match="128-bit security"):
        sealer(json.dumps(keys | {"degree": 1024}).encode())


@every_cipher
def test_equal_vectors_give_different_ciphertexts(name):
    assert SEALERS[name].seal([1.0]) != SEALERS[name].seal([1.0])


def _work(name, pipe):
    blob = SEALERS[name].seal(np.ones(10))
    pipe.send_bytes(blob)
    pipe.send_bytes(SEALERS[name].open(blob).tobytes())


@every_scheme
def test_sealers_made_before_a_fork_work_in_the_children_with_fresh_randomness(name):
    """A generator copied by fork would seal with the same noise twice and show the difference of two models."""
    SEALERS[name].seal(np.ones(10))  # the generator has been used: the children inherit its state, if it has one
    fork = multiprocessing.get_context("fork")
    blobs = []
    for _ in range(3):
        here, there = fork.Pipe()
        child = fork.Process(target=_work, args=(name, there))
        child.start()
        assert here.poll(PATIENCE)
        blobs.append(here.recv_bytes())
        assert np.allclose(np.frombuffer(here.recv_bytes()), 1)
        child.join(PATIENCE)
        assert child.exitcode == 0
    if name != "none":
        halves = [blob[LABEL_BYTES + part : LABEL_BYTES + part + 32768] for blob in blobs for part in (0, 32768)]
        assert len(set(halves)) == 6  # c0 and c1 of each child differ
    total = mix(SEALERS[name].public(), [[1, 1, 1]], blobs)[0]
    assert np.allclose(SEALERS[name].open(total), 3)


@every_scheme
def test_a_slice_of_a_larger_message_is_accepted_whatever_its_alignment(name):
    blob = SEALERS[name].seal([1.0, 2.0])
    server = mixer(SEALERS[name].public(), 1, 2)
    server.add(memoryview(b"abc" + blob)[3:], [0])
    server.add(bytearray(blob), [0])
    assert np.allclose(SEALERS[name].open(server.sums()[0]), [2, 4])


@every_scheme
def test_memory_does_not_grow_with_the_number_of_clients(name):
    def peak(clients):
        server = mixer(SEALERS[name].public(), 2, 4096)
        tracemalloc.start()
        for _ in range(clients):
            server.add(SEALERS[name].seal(np.zeros(4096)), [0])
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    peak(1)
    assert peak(60) < 1.2 * peak(30)


def test_counts_must_be_near_whole_numbers():
    assert whole_counts([0.0, 2.0999, 2.9001, -0.05]).tolist() == [0, 2, 3, 0]
    for bad in (2.11, 0.5, np.nan, np.inf, -1.0):
        with pytest.raises(CoveyError, match="whole number"):
            whole_counts([1.0, bad])


def test_mix_refuses_matrices_that_do_not_fit():
    blobs = [SEALERS["none"].seal([1.0])] * 2
    public = SEALERS["none"].public()
    for member, sealed in (([[1, 1, 1]], blobs), ([[1]], blobs), ([1, 1], blobs), (np.ones((1, 0)), [])):
        with pytest.raises(CoveyError):
            mix(public, member, sealed)


def test_unknown_schemes_and_nonsense_are_refused():
    with pytest.raises(CoveyError, match="did you mean 'ckks'"):
        sealing.generate_keys("cks")
    for text in (b"", b"[]", b"{}", b"\xff", b'{"scheme": 3}'):
        with pytest.raises(CoveyError):
            sealer(text)


def test_plain_bytes_are_believed_only_where_they_were_written():
    plain, fresh = SEALERS["none"], SEALERS["none"].seal(vectors(1, 10)[0])
    for travelled in (pickle.loads(pickle.dumps(fresh)), decode(encode(fresh)), fresh[:], bytes(fresh)):
        assert type(travelled) is bytes and np.array_equal(plain.open(travelled), plain.open(fresh))
        with pytest.raises(CoveyError, match="altered on the way"):
            plain.open(travelled[:-1] + bytes([travelled[-1] ^ 1]))


def test_rows_in_the_clear_are_the_bytes_and_the_sums_of_each():
    """More clients than the mixer lets wait, beside one that came alone."""
    plain = vectors(37, 5000)
    members = [np.flatnonzero(row).tolist() for row in np.random.default_rng(1).random((37, 4)) < 0.6]
    rows = sealing.seal_rows(KEYS["none"], torch.from_numpy(plain))
    one_by_one = [SEALERS["none"].seal(vector) for vector in plain]
    assert list(rows) == one_by_one and rows[5] == one_by_one[5] and len(rows) == 37
    assert len(rows.like()) == len(one_by_one[0])
    apart, together = (mixer(SEALERS["none"].public(), 4, 5000) for _ in range(2))
    for blob, shown in zip([*one_by_one, one_by_one[0]], [*members, [2]], strict=True):
        sealing.add(apart, blob, [shown])
    sealing.add(together, rows, members)
    sealing.add(together, one_by_one[0], [[2]])
    assert apart.sums() == together.sums()


def test_sums_in_the_clear_are_written_when_somebody_asks(monkeypatch):
    """As the list that they stand for: on the wire, in a copy, pickled, looked at one by one."""
    plain, written, write = SEALERS["none"], [], sealing._module("none")._write
    server = mixer(plain.public(), 3, 5000)
    sealing.add(server, sealing.seal_rows(KEYS["none"], torch.from_numpy(vectors(4, 5000))), [[0], [0, 1], [1], [0, 1]])
    expected = server.sums()
    monkeypatch.setattr("covey.crypto.sealing.plain._write", lambda *given: written.append(given) or write(*given))
    rows = sealing.sums_of(server)
    assert type(expected) is list and len(rows) == 3
    assert size(rows) == len(encode(expected))
    assert size([rows, {"again": rows}]) == len(encode([expected, {"again": expected}]))
    opened = sealing.open_rows(KEYS["none"], rows)
    assert not written
    assert np.array_equal(opened.double().numpy(), [plain.open(one) for one in expected])
    assert [Label.read(one).terms for one in rows] == [3, 3, 0]
    for other in (list(rows), rows[:], copied(rows), pickle.loads(pickle.dumps(rows)), decode(encode(rows))):
        assert type(other) is list and other == expected and rows == other
    assert encode([rows, {"again": rows}]) == encode([expected, {"again": expected}])
    assert len(written) == 3  # once
    assert same(rows, expected) and rows[1] == expected[1]
    assert rows != expected[:2] and not same(rows, expected[:2])


def test_rows_of_sums_are_opened_by_who_hides_nothing_alone():
    server = mixer(SEALERS["none"].public(), 1, 3)
    server.add(SEALERS["none"].seal([1.0, 2.0, 3.0]), [0])
    assert sealing.open_rows(KEYS["ckks"], sealing.sums_of(server)) is None
    assert sealing.open_rows(KEYS["none"], server.sums()) is None  # bytes: they may have come from anywhere
    with pytest.raises(CoveyError, match="sealed with 'none'"):
        SEALERS["ckks"].open(sealing.sums_of(server)[0])
    assert type(sealing.sums_of(mixer(SEALERS["ckks"].public(), 1, 3))) is list


def test_sums_of_nobody_are_zeros():
    for blob in mixer(SEALERS["none"].public(), 2, 3).sums():
        assert Label.read(blob).terms == 0 and SEALERS["none"].open(blob).tolist() == [0, 0, 0]


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf, -2e30])
def test_rows_that_would_spoil_a_sum_are_refused(wrong):
    plain = torch.from_numpy(vectors(3, 20))
    plain[1, 7] = wrong
    with pytest.raises(CoveyError, match="spoil the sum"):
        sealing.add(mixer(SEALERS["none"].public(), 2, 20), sealing.seal_rows(KEYS["none"], plain), [[0], [1], [0, 1]])
    with pytest.raises(CoveyError, match="for 2 clients"):
        sealing.add(mixer(SEALERS["none"].public(), 2, 20), sealing.seal_rows(KEYS["none"], plain), [[0], [1]])


gpu = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=gpu)])
@pytest.mark.parametrize("alone", [0, 7])  # clients that came one by one
def test_rows_are_added_where_they_are(device, alone, monkeypatch):
    monkeypatch.setattr("covey.crypto.sealing.plain._THERE", (device,))
    monkeypatch.setattr("covey.crypto.sealing.plain._AT_ONCE", 5000 * 16)  # 37 clients in three parts
    plain = vectors(37, 5000)
    members = [np.flatnonzero(row).tolist() for row in np.random.default_rng(1).random((37, 4)) < 0.6]
    here, there = (mixer(SEALERS["none"].public(), 4, 5000) for _ in range(2))
    for blob, shown in zip(map(SEALERS["none"].seal, plain), members, strict=True):
        here.add(blob, shown)
    rows = sealing.seal_rows(KEYS["none"], torch.from_numpy(plain[alone:]).to(device))
    sealing.add(there, rows, members[alone:])
    for blob, shown in zip(map(SEALERS["none"].seal, plain[:alone]), members[:alone], strict=True):
        there.add(blob, shown)
    for a, b in zip(here.sums(), there.sums(), strict=True):
        assert Label.read(a).terms == Label.read(b).terms
        assert np.allclose(SEALERS["none"].open(a), SEALERS["none"].open(b), rtol=2e-7, atol=0)
    with pytest.raises(CoveyError, match="spoil the sum"):
        sealing.add(there, sealing.seal_rows(KEYS["none"], torch.full((1, 5000), torch.nan).to(device)), [[0]])

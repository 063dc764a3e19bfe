"""`covey data list`, `check` and `get`: the downloads come from a real server on the loopback interface."""

import hashlib
import os
import re
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from covey.data.sources import SOURCES, catalogue, store
from covey.data.sources.download import fetch
from covey.data.sources.files import Form, Source, WantedFile
from covey.errors import CoveyError

BODY = np.random.default_rng(0).bytes(700_000)


@contextmanager
def server(body=BODY, ranges=True, stop_after=None, status=None):
    """Serves `body` under any path; `stop_after`: breaks the first connection off after so many bytes."""
    log = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            wanted = self.headers.get("Range")
            log.append(wanted)
            start = int(re.match(r"bytes=(\d+)-$", wanted)[1]) if wanted and ranges else 0
            if status or start >= len(body):
                self.send_response(status or 416)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.send_response(206 if start else 200)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
            self.send_header("Content-Length", str(len(body) - start))
            self.end_headers()
            breaks = stop_after if stop_after and len(log) == 1 else len(body)
            self.wfile.write(body[start:breaks])

        def log_message(self, *_):
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{http.server_port}/file", log
    finally:
        http.shutdown()
        http.server_close()
        thread.join()


def wanted(*urls, body=BODY):
    return WantedFile("set.bin", urls, sha256=hashlib.sha256(body).hexdigest())


def test_a_file_is_fetched_verified_and_reported(tmp_path):
    seen = []
    with server() as (url, _):
        path = fetch(wanted(url), tmp_path / "new", lambda *step: seen.append(step))
    assert path == tmp_path / "new" / "set.bin" and path.read_bytes() == BODY
    assert seen[-1] == ("set.bin", len(BODY), len(BODY))
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)
    assert [p.name for p in path.parent.iterdir()] == ["set.bin"]


def test_an_interrupted_download_resumes_where_it_stopped(tmp_path):
    with server(stop_after=300_000) as (url, log):
        with pytest.raises(CoveyError, match="300,000 bytes are kept: the next try resumes"):
            fetch(wanted(url), tmp_path)
        assert not (tmp_path / "set.bin").exists()
        fetch(wanted(url), tmp_path)
    assert log == [None, "bytes=300000-"]
    assert (tmp_path / "set.bin").read_bytes() == BODY


def test_a_server_without_ranges_starts_over(tmp_path):
    (tmp_path / "set.bin.part").write_bytes(BODY[:1000])
    with server(ranges=False) as (url, log):
        assert fetch(wanted(url), tmp_path).read_bytes() == BODY
    assert len(log) == 1


@pytest.mark.parametrize("left", [b"wrong half", BODY + b"too long"])
def test_a_wrong_part_is_dropped_and_fetched_anew(tmp_path, left):
    (tmp_path / "set.bin.part").write_bytes(left)
    with server() as (url, log):
        assert fetch(wanted(url), tmp_path).read_bytes() == BODY
    assert log[1:] == [None]


def test_a_complete_part_only_moves_into_place(tmp_path):
    (tmp_path / "set.bin.part").write_bytes(BODY)
    with server() as (url, _):
        assert fetch(wanted(url), tmp_path).read_bytes() == BODY


def test_a_wrong_checksum_leaves_nothing_behind(tmp_path):
    with server(body=b"something else") as (url, _), pytest.raises(CoveyError, match="checksum is wrong"):
        fetch(wanted(url), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_next_mirror_is_tried(tmp_path):
    with server(body=b"bad") as (bad, _), server(status=404) as (gone, _), server() as (good, _):
        assert fetch(wanted(bad, gone, good), tmp_path).read_bytes() == BODY


def test_offline_says_which_file_to_put_where(tmp_path):
    with server() as (url, _):
        pass  # the port is free again: the connection is refused
    with pytest.raises(CoveyError) as refusal:
        fetch(wanted(url), tmp_path)
    assert "refused" in str(refusal.value)
    assert f"put set.bin into {tmp_path} by hand (from {url})" in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with server() as (url, _), pytest.raises(CoveyError, match=r"cannot write to .*choose another COVEY_DATA"):
        fetch(wanted(url), tmp_path / "file")


# ------------------------------------------------------- by dataset


@pytest.fixture
def table(monkeypatch, tmp_path):
    """A small 0/1 set under the name `location30`, with a mirror on this machine."""
    source = tmp_path / "source.npz"
    np.savez(source, x=np.eye(90, 446), y=np.arange(90) % 30)
    body = source.read_bytes()
    with server(body) as (url, log):
        file = WantedFile("location30.npz", (url,), sha256=hashlib.sha256(body).hexdigest())
        form = Form((file,), SOURCES["location30"].forms[2].read, ("location30", ""))
        known = Source("location30", "a table", "binary", 30, "none", (form,), (446,))
        monkeypatch.setattr(catalogue, "LOCATION30", known)
        yield tmp_path / "data", log


def test_get_then_list_then_check(table):
    folder, log = table
    assert not next(e for e in store.inventory(folder) if e.name == "location30").present
    paths = store.get("location30", folder=folder)
    assert [p.name for p in paths] == ["location30.npz"]
    assert store.get("location30", folder=folder) == paths and len(log) == 1  # intact: not fetched twice
    entry = next(e for e in store.inventory(folder) if e.name == "location30")
    assert entry.present and entry.bytes == paths[0].stat().st_size and entry.paths == paths
    report = store.check("location30", folder)
    assert (report.train, report.test, report.shape, report.classes) == (60, 30, (446,), 30)
    assert report.checksums == ((paths[0], "published"),)


def test_get_replaces_a_damaged_file(table):
    folder, log = table
    (folder / "location30").mkdir(parents=True)
    (folder / "location30" / "location30.npz").write_bytes(b"torn")
    with pytest.raises(CoveyError, match=r"location30.npz cannot be decoded"):
        store.check("location30", folder)
    store.get("location30", folder=folder)
    assert store.check("location30", folder).train == 60 and len(log) == 1


def test_check_tells_a_copy_that_is_not_the_published_one(tmp_path):
    np.savez(tmp_path / "location30.npz", x=np.eye(90, 446), y=np.arange(90) % 30)
    assert store.check("location30", tmp_path).checksums == ((tmp_path / "location30.npz", "other"),)


def test_get_of_what_needs_no_download_and_of_what_has_no_mirror(tmp_path):
    assert store.get("digits", folder=tmp_path) == () == store.get("yelp-like", folder=tmp_path)
    with pytest.raises(CoveyError, match="no public mirror"):
        store.get("utkface", folder=tmp_path)
    with pytest.raises(CoveyError, match="did you mean 'cifar10'"):
        store.get("cifar01", folder=tmp_path)


def test_inventory_lists_every_source(tmp_path):
    entries = store.inventory(tmp_path)
    assert [e.name for e in entries] == list(SOURCES)
    present = {e.name for e in entries if e.present}
    packaged = {name for name in SOURCES if SOURCES[name].package}  # there where a package is
    assert present - packaged == {"digits", "heart", "purchase100-like", "texas100-like", "yelp-like"}
    assert {e.name for e in entries if not e.fetchable} == present | packaged | {
        "utkface",
        "yelp",
        "emnist_bymerge47",
        "femnist",
        "shakespeare",
        "flamby_heart",
    }


def test_every_known_checksum_looks_like_one_and_every_mirror_is_http():
    for source in SOURCES.values():
        for form in source.forms:
            for file in form.files:
                assert re.fullmatch(r"([0-9a-f]{64})?", file.sha256), file
                assert re.fullmatch(r"([0-9a-f]{32})?", file.md5), file
                assert all(url.startswith(("https://", "http://")) for url in file.urls)


@pytest.mark.data
@pytest.mark.skipif(not os.environ.get("COVEY_DATA"), reason="COVEY_DATA does not name a folder with datasets")
def test_real_packed_files_match_their_checksums():
    packed = [e for e in store.inventory() if any(path.suffix == ".npz" for path in e.paths)]
    if not packed:
        pytest.skip("no packed dataset in COVEY_DATA")
    small = min(packed, key=lambda entry: entry.bytes)
    assert [word for _, word in store.check(small.name).checksums] == ["published"]

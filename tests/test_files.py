"""Files of a run: what was cut off, damaged, or is another process's is not taken for good."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from covey.errors import CoveyError
from covey.files import append_line, load, read_lines, read_state, save, write_state
from covey.messages import encode
from covey.results.folder import RunFolder


def test_reading_ends_at_the_first_line_that_is_not_whole(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    for round in (1, 2):
        append_line(path, {"round": round})
    with path.open("a") as file:
        file.write('{"round": 3, "accu\n')
    append_line(path, {"round": 4})  # as if somebody had gone on behind the tear
    assert [record["round"] for record in read_lines(path)] == [1, 2]
    assert read_lines(tmp_path / "nothing") == []


def _with_a_flipped_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def test_a_flipped_bit_is_noticed_and_the_checkpoint_before_is_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for round in (1, 2):
        save(tmp_path, {"round": round, "bytes": b"a model"}, {})
    assert load(tmp_path)[0]["round"] == 2
    _with_a_flipped_bit(tmp_path / "state.bin")
    assert load(tmp_path)[0]["round"] == 1
    assert "damaged" in capsys.readouterr().err
    _with_a_flipped_bit(tmp_path / "state.before.bin")
    with pytest.raises(CoveyError, match="damaged"):
        load(tmp_path)


def test_states_of_older_versions_have_no_checksum_and_are_read(tmp_path: Path) -> None:
    path = tmp_path / "state.bin"
    path.write_bytes(encode({"round": 3}))
    assert read_state(path) == {"round": 3}
    write_state(path, {"round": 4})
    assert read_state(path) == {"round": 4}


def test_a_folder_has_one_process_at_a_time(tmp_path: Path) -> None:
    other = (
        "import sys, pathlib; from covey.results.folder import RunFolder\n"
        f"with RunFolder(pathlib.Path({str(tmp_path)!r})).owned(): print('mine', flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen([sys.executable, "-c", other], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin and process.stdout and process.stdout.readline() == "mine\n"
    with pytest.raises(CoveyError, match=rf"process {process.pid}\) runs in"), RunFolder(tmp_path).owned():
        pass
    process.kill()  # however it ends, the folder is free again
    process.wait()
    with RunFolder(tmp_path).owned():
        assert (tmp_path / ".lock").is_file()
    assert not (tmp_path / ".lock").exists()

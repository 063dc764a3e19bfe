"""Lines of JSON on disk: what was cut off, and all that stands behind it, is not read."""

from __future__ import annotations

from pathlib import Path

from covey.files import append_line, read_lines


def test_reading_ends_at_the_first_line_that_is_not_whole(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    for round in (1, 2):
        append_line(path, {"round": round})
    with path.open("a") as file:
        file.write('{"round": 3, "accu\n')
    append_line(path, {"round": 4})  # as if somebody had gone on behind the tear
    assert [record["round"] for record in read_lines(path)] == [1, 2]
    assert read_lines(tmp_path / "nothing") == []

"""Small pictures as PNG inside the page, so that nothing is fetched."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence

Pixels = Sequence[Sequence[Sequence[int]]]  # [h][w][c], c = 1 or 3, from 0 to 255


def png(picture: Pixels) -> bytes:
    """An 8-bit PNG, grey or in colours."""
    height, width, channels = len(picture), len(picture[0]), len(picture[0][0])
    lines = b"".join(b"\0" + bytes(value for pixel in line for value in pixel) for line in picture)
    head = struct.pack(">IIBBBBB", width, height, 8, 0 if channels == 1 else 2, 0, 0, 0)
    body = [(b"IHDR", head), (b"IDAT", zlib.compress(lines)), (b"IEND", b"")]
    chunks = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in body
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def data_address(picture: Pixels) -> str:
    return f"data:image/png;base64,{base64.b64encode(png(picture)).decode()}"


def is_picture(given: object) -> bool:
    """Whether something that was stored can be drawn."""
    if not (isinstance(given, list) and given and all(isinstance(line, list) and line for line in given)):
        return False
    pixels = [pixel for line in given for pixel in line]
    shape = {len(line) for line in given}, {len(pixel) if isinstance(pixel, list) else 0 for pixel in pixels}
    whole = all(
        type(value) is int and 0 <= value <= 255 for pixel in pixels if isinstance(pixel, list) for value in pixel
    )
    return len(shape[0]) == 1 and shape[1] in ({1}, {3}) and whole

"""All of CIFAR-10 in pieces that a call to the device machine can take along: `cifar10_full.npz.00`, `.01`, … and `.count`.

    python benchmarks/cifar10_pieces.py cifar10_full.npz FOLDER [--megabytes 38]

The pixels are kept as differences and packed by LZMA, which makes 102 MB of 170; `covey` reads the joined file as it reads
the other (`data/sources/packed.py`), and its samples have the same fingerprint. Takes four CPU minutes.
"""

from __future__ import annotations

import argparse
import io
import zipfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray


def differences(x: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """[m, h, w, 3] -> [3, m, h, w]: (R − G, G, B − G), each along both image axes, modulo 256."""
    red, green, blue = (x[..., channel] for channel in range(3))
    planes = np.stack([red - green, green, blue - green])
    down = np.diff(planes, axis=-2, prepend=np.uint8(0))
    return np.diff(down, axis=-1, prepend=np.uint8(0))


def packed(source: Path) -> bytes:
    """The arrays of the file, smaller."""
    body = io.BytesIO()
    with np.load(source) as arrays, zipfile.ZipFile(body, "w", zipfile.ZIP_LZMA) as archive:
        for half in ("train", "test"):
            for name, array in (
                (f"x_{half}_diff", differences(arrays[f"x_{half}"])),
                (f"y_{half}", arrays[f"y_{half}"]),
            ):
                with archive.open(f"{name}.npy", "w") as file:
                    np.lib.format.write_array(file, array)
    return body.getvalue()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--megabytes", type=float, default=38.0)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    body, size = packed(options.source), int(options.megabytes * 1e6)
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    for number, piece in enumerate(pieces):
        (options.folder / f"{options.source.name}.{number:02d}").write_bytes(piece)
    (options.folder / f"{options.source.name}.count").write_text(f"{len(pieces)}\n")
    print(f"{len(body) / 1e6:.0f} MB in {len(pieces)} pieces in {options.folder}")


if __name__ == "__main__":
    main()

"""What the door costs: a ResNet-18 letter under CKKS, up and down, through it and past it.

    covey bench door

Before the door, silos spoke TLS with Flower's SuperLink, which is uvicorn; now they speak TLS with the door, and the door speaks
plain HTTP with uvicorn on loopback. Both ways are measured in turns with uvicorn and an app that takes and gives bodies as long as
Flower's pieces, over two connections at a time as a SuperNode opens them: 179 MB up and 358 MB down. All processes share this
machine, so a second is a second of computing, too.
"""

from __future__ import annotations

import argparse
import json
import os
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from covey.deploy.flower.process import DoorProcess, Tls, free_port, listening
from covey.deploy.membership import certificates

PIECE = 5 << 20
UP, DOWN = round(179e6 / PIECE), round(358e6 / PIECE)
PUSH, PULL = "/v1/fleet/push-object", "/v1/fleet/pull-object"
APP = f"""
async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    parts, more = [], True
    while more:
        event = await receive()
        parts.append(event.get("body", b""))
        more = event.get("more_body", False)
    body = b"".join(parts)
    answer = bytes({PIECE}) if scope["path"] == "{PULL}" else b""
    headers = [(b"content-length", str(len(answer)).encode())]
    await send({{"type": "http.response.start", "status": 200, "headers": headers}})
    await send({{"type": "http.response.body", "body": answer}})
"""


def headers() -> tuple[dict[str, str], bytes]:
    """(what a SuperNode signs, its public key)."""
    from base64 import b64encode

    key, timestamp = ec.generate_private_key(ec.SECP384R1()), "2026-01-01T00:00:00+00:00"
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    public = key.public_key().public_bytes(serialization.Encoding.PEM, form)
    signature = key.sign(timestamp.encode(), ec.ECDSA(hashes.SHA256()))
    return {
        "flwr-public-key": b64encode(public).decode(),
        "flwr-timestamp": timestamp,
        "flwr-signature": b64encode(signature).decode(),
    }, public


def uvicorn(folder: Path, *words: str) -> tuple[subprocess.Popen[bytes], int]:
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "sink:app", "--app-dir", str(folder), "--port", str(port), *words]
    return subprocess.Popen([*command, "--log-level", "error"]), port


def letter(client: httpx.Client, url: str, signed: dict[str, str]) -> float:
    """Seconds for one letter up and one down."""
    piece = bytes(PIECE)

    def call(path: str) -> None:
        body = piece if path == PUSH else b"which"
        client.post(f"{url}{path}", content=body, headers=signed).raise_for_status()

    begin = time.perf_counter()
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(call, [PUSH] * UP + [PULL] * DOWN))
    return time.perf_counter() - begin


def computed(*processes: int) -> float:
    """Seconds of computing of these processes so far (Linux); unlike the clock's it does not depend on who else is busy."""
    ticks = 0
    for process in processes:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def measure(turns: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "sink.py").write_text(APP)
        authority = certificates.make_authority()
        server = certificates.issue_server(authority, ["localhost"])
        tls = Tls(folder / "ca.crt", folder / "server.crt", folder / "server.key")
        for path, text in zip(
            ("ca.crt", "server.crt", "server.key"), (authority.public, server.public, server.private)
        ):
            (folder / path).write_bytes(text)
        direct, direct_port = uvicorn(
            folder, "--ssl-certfile", f"{name}/server.crt", "--ssl-keyfile", f"{name}/server.key"
        )
        inner, inner_port = uvicorn(folder)
        listener = listening("127.0.0.1", 0)
        door = DoorProcess.start(listener, tls, folder)
        signed, public = headers()
        door.tell(inner_port, {public: 1})
        ways = {"past it": direct_port, "through the door": listener.getsockname()[1]}
        serving = {"past it": [direct.pid], "through the door": [door.popen.pid, inner.pid]}
        seconds: dict[str, list[float]] = {way: [] for way in ways}
        computing: dict[str, list[float]] = {way: [] for way in ways}
        try:
            with httpx.Client(verify=ssl.create_default_context(cafile=str(tls.ca)), timeout=60) as client:
                time.sleep(3)
                for turn in range(turns + 1):
                    for way, port in ways.items():
                        before = computed(*serving[way])
                        spent = letter(client, f"https://localhost:{port}", signed)
                        if turn:  # the first warms up
                            seconds[way].append(spent)
                            computing[way].append(computed(*serving[way]) - before)
        finally:
            door.stop()
            for process in (direct, inner):
                process.terminate()
                process.wait()
        return {
            "megabytes": (UP + DOWN) * PIECE / 1e6,
            "seconds": seconds,
            "computing": computing,
            "median_seconds": {way: statistics.median(spent) for way, spent in seconds.items()},
            "median_computing": {way: statistics.median(spent) for way, spent in computing.items()},
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--out", type=Path)
    words = parser.parse_args()
    result = measure(words.turns)
    print(json.dumps(result, indent=2))
    if words.out:
        words.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()

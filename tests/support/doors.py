"""The door alone, as a process, before an inner server that notes what reaches it."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import threading
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from covey.deploy.flower.process import DoorProcess, Tls, listening
from covey.deploy.membership import certificates
from support.patience import PATIENCE, until

NUMBER = 2**63 + 300  # of the silo's node: Flower's are as long


class Inner(ThreadingHTTPServer):
    """Answers every POST with the body that it got, unless told otherwise."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Echo)
        self.calls: list[tuple[str, dict[str, str], int]] = []
        self.bodies: list[bytes] = []
        self.answers: dict[str, bytes] = {}  # to calls of which the answer is another
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Echo(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        assert isinstance(self.server, Inner)
        self.server.calls.append((self.path, dict(self.headers), len(body)))
        self.server.bodies.append(body)
        if self.path in self.server.answers:
            body = self.server.answers[self.path]
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *words: object) -> None:
        pass


class Silo:
    """A node key, and what is signed with it."""

    def __init__(self) -> None:
        self.private = ec.generate_private_key(ec.SECP384R1())
        self.public = self.private.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )

    def headers(self, claimed: bytes | None = None) -> dict[str, str]:
        timestamp = "2026-01-01T00:00:00+00:00"  # whether it is now is for Flower to judge
        signature = self.private.sign(timestamp.encode(), ec.ECDSA(hashes.SHA256()))
        return {
            "flwr-public-key": b64encode(claimed or self.public).decode(),
            "flwr-timestamp": timestamp,
            "flwr-signature": b64encode(signature).decode(),
        }

    def request(self, path: str = "/v1/fleet/get-run", body: bytes = b"", **more: str) -> bytes:
        lines = [f"POST {path} HTTP/1.1", f"content-length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in {**self.headers(), **more}.items()]
        return "\r\n".join([*lines, "", ""]).encode() + body


class StandingDoor:
    """A door with TLS that admits one silo."""

    def __init__(self, folder: Path) -> None:
        authority = certificates.make_authority()
        server = certificates.issue_server(authority, ["localhost"])
        paths = {"ca.crt": authority.public, "server.crt": server.public, "server.key": server.private}
        for name, text in paths.items():
            (folder / name).write_bytes(text)
        self.folder, self.silo, self.inner = folder, Silo(), Inner()
        self.listener = listening("127.0.0.1", 0)
        self.port = int(self.listener.getsockname()[1])
        self.heard: list[dict[str, str]] = []
        self.process = DoorProcess.start(
            self.listener,
            Tls(folder / "ca.crt", folder / "server.crt", folder / "server.key"),
            folder,
            self.heard.append,
        )
        self.admit()
        self.tls = ssl.create_default_context(cafile=str(folder / "ca.crt"))
        self.tls.check_hostname = False

    def admit(self) -> None:
        self.process.tell(self.inner.server_port, {self.silo.public: NUMBER})

    def dial(self, address: str = "127.0.0.1", seconds: float = PATIENCE) -> ssl.SSLSocket:
        plain = socket.create_connection(("127.0.0.1", self.port), timeout=seconds, source_address=(address, 0))
        return self.tls.wrap_socket(plain)

    def status(self, request: bytes) -> int:
        """The status of the answer; 0: hung up without one."""
        with self.dial() as line:
            line.sendall(request)
            return status_of(line)

    def megabytes(self) -> float:
        text = Path(f"/proc/{self.process.popen.pid}/status").read_text()
        return int(text.split("VmRSS:")[1].split()[0]) / 1e3

    def handles(self) -> int:
        return len(list(Path(f"/proc/{self.process.popen.pid}/fd").iterdir()))

    def is_connected(self) -> bool:
        """Beside the listener and the two ends by which asyncio wakes itself."""
        links = []
        for link in Path(f"/proc/{self.process.popen.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed since it was listed
                links.append(os.readlink(link))
        return sum(link.startswith("socket:") for link in links) > 3

    def close(self) -> None:
        self.process.stop()
        self.listener.close()
        self.inner.shutdown()


def status_of(line: ssl.SSLSocket) -> int:
    try:
        head = b""
        while b"\r\n\r\n" not in head:
            part = line.recv(65536)
            if not part:
                return 0
            head += part
        return int(head.split(b" ")[1])
    except (ConnectionError, ssl.SSLError):
        return 0


@contextmanager
def standing_door(folder: Path) -> Iterator[StandingDoor]:
    door = StandingDoor(folder)
    try:
        until(lambda: door.status(door.silo.request()) == 200)
        door.inner.calls.clear()
        yield door
    finally:
        door.close()

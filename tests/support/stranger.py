"""Somebody who reaches the coordinator's port and has no key of the federation: what Flower's services say to them."""

from __future__ import annotations

import contextlib
from base64 import b64encode
from typing import Any

import httpx
from flwr.proto.control_pb2 import (
    ListNodesRequest,
    ListNodesResponse,
    ListRunsRequest,
    ListRunsResponse,
    RegisterNodeRequest,
    StartRunRequest,
    StopRunRequest,
    UnregisterNodeRequest,
)
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    DeactivateNodeRequest,
    PullMessagesRequest,
    RegisterNodeFleetRequest,
    UnregisterNodeFleetRequest,
)
from flwr.proto.node_pb2 import Node
from flwr.proto.runtime_pb2 import AcquireTaskRequest, GetNodesRequest
from flwr.supercore.date import now
from flwr.supercore.primitives.asymmetric import generate_key_pairs, public_key_to_bytes, sign_message

PROTOBUF = {"content-type": "application/protobuf"}
GONE = 0  # nobody listens any more: the stranger has ended the coordinator


class Stranger:
    """Keys of their own, made on the spot."""

    def __init__(self, port: int) -> None:
        self.client = httpx.Client(base_url=f"https://localhost:{port}", verify=False, timeout=20)
        self.private, public = generate_key_pairs()
        self.public = public_key_to_bytes(public)

    def signed(self, public: bytes | None = None) -> dict[str, str]:
        """The headers of a SuperNode; with another's public key they do not fit the signature."""
        timestamp = now().isoformat()
        return {
            "flwr-public-key": b64encode(public or self.public).decode(),
            "flwr-timestamp": timestamp,
            "flwr-signature": b64encode(sign_message(self.private, timestamp.encode())).decode(),
        }

    def post(self, path: str, request: Any, headers: dict[str, str] | None = None) -> httpx.Response:
        try:
            return self.client.post(path, content=request.SerializeToString(), headers={**PROTOBUF, **(headers or {})})
        except httpx.TransportError:
            return httpx.Response(GONE)

    def everything(self, silo: bytes) -> dict[str, int]:
        """What is asked -> the status of the answer. `silo` is a silo's public key, which is no secret."""
        listed = self.post("/v1/control/list-nodes", ListNodesRequest())
        nodes = ListNodesResponse.FromString(listed.content).nodes_info if listed.status_code == 200 else ()
        runs = self.post("/v1/control/list-runs", ListRunsRequest())
        known = ListRunsResponse.FromString(runs.content).run_dict if runs.status_code == 200 else ()
        node, run = next((n.node_id for n in nodes), 1), next(iter(known), 1)
        calls: dict[str, Any] = {
            "control/register-node": RegisterNodeRequest(public_key=self.public, name="stranger"),
            "control/start-run": StartRunRequest(),
            "control/stop-run": StopRunRequest(run_id=run),
            "control/unregister-node": UnregisterNodeRequest(node_id=node),
            "runtime/acquire-task": AcquireTaskRequest(supported_task_types=["flwr-serverapp"]),
            "runtime/get-nodes": GetNodesRequest(),
            "fleet/register-node": RegisterNodeFleetRequest(public_key=self.public),
            "fleet/activate-node": ActivateNodeRequest(public_key=self.public, heartbeat_interval=30),
            "fleet/deactivate-node": DeactivateNodeRequest(node_id=node),
            "fleet/unregister-node": UnregisterNodeFleetRequest(node_id=node),
            "fleet/pull-messages": PullMessagesRequest(node=Node(node_id=node)),
        }
        answers = {"control/list-nodes": listed.status_code, "control/list-runs": runs.status_code}
        for name, request in calls.items():
            answers[name] = self.post(f"/v1/{name}", request, self.signed()).status_code
            answers[f"{name}, without a signature"] = self.post(f"/v1/{name}", request).status_code
            answers[f"{name}, as a silo"] = self.post(f"/v1/{name}", request, self.signed(silo)).status_code
        for path in ("/", "/docs", "/openapi.json", "/health", "/v1/fleet/../control/list-nodes"):
            with contextlib.suppress(httpx.TransportError):
                answers[f"GET {path}"] = self.client.get(path).status_code
        return answers

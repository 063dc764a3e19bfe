"""Flower's Fleet API as a party calls it: its node's life at the coordinator, the letters for it, and its answers.

Flower's own SuperNode is not used: it is a process of 150 MB beside every silo, ends itself by signals, waits for up to 20 s
between attempts to connect, and can say only in its log why it does not. Its client is, and its messages. What goes wrong is
one of three: the coordinator cannot be reached now (`Away`), it does not know this life of the node (`Forgotten`), or it is not
the coordinator that this party's keys are for (`Foreign`), which waiting does not mend.
"""

from __future__ import annotations

import ssl
import time
from base64 import b64encode
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from covey.deploy.flower.clock import Clock
from covey.deploy.flower.door import HOLD_SECONDS, UNKNOWN_KEY, WHY
from covey.deploy.flower.payload import content, record
from covey.deploy.flower.process import Tls
from covey.deploy.membership.roll import REPLACED
from covey.deploy.membership.standing import SERVER, Validity
from covey.errors import CoveyError, printable

T = TypeVar("T")
BEAT_SECONDS = 4.0
BEATS_SECONDS = 10.0  # that Flower is told to expect between beats; it takes a node for gone after two of them
CONNECT_SECONDS = 8.0
ANSWER_SECONDS = HOLD_SECONDS + 5.0  # without a byte of the answer to a question for letters
SLOWEST = 100_000  # bytes per second, of all pieces of an answer that leave at once
AT_ONCE = 3  # pieces of a letter each way; the door takes eight connections of a key
PIECE_BYTES = 5 << 20  # Flower cuts letters so
KEEP_SECONDS = 60.0  # a connection that nothing passes; the door ends it after 75 s
RESEND_SECONDS = 20.0  # in which a letter's piece is tried again, before the letter is given up


class Away(CoveyError):
    """The coordinator does not answer; it may later."""


class Declined(Away):
    """The coordinator does not want this call now."""


class Forgotten(CoveyError):
    """The coordinator knows no such life of this node: it was started again, or believes that we were."""


class Unknown(CoveyError):
    """The coordinator's door does not admit this node's key."""


class Struck(CoveyError):
    """The coordinator's door admitted this node's key once, and does so no more, for good."""


class Foreign(CoveyError):
    """Who answers is not who this party's keys are for."""


@dataclass(frozen=True)
class Question:
    """A letter, and what an answer to it has to name."""

    data: bytes | None  # None: no bytes of ours
    message: Any


class Fleet:
    """A node's calls. Every method raises one of those above where it fails, and nothing else."""

    def __init__(
        self,
        superlink: str,
        tls: Tls | None,
        clock: Clock,
        remind: Callable[[Validity], None] = lambda validity: None,
    ) -> None:
        """`remind` is told, with every call that is answered, until when the server's certificate holds."""
        self.superlink, self.secure, self.clock, self.remind = superlink, tls is not None, clock, remind
        self.number = 0  # of this life
        self._keys = _node_keys(tls)
        self._tls = None if tls is None else trusting(tls)
        self._connect()

    def begin(self, former: int) -> int:
        """A life of this node, under its number. A former one, that was ours, is ended first."""
        from flwr.proto.fleet_pb2 import ActivateNodeRequest, RegisterNodeFleetRequest

        self.close()
        self._connect()  # connections of the former life may be dead without knowing
        if former:
            self.end(former)
        public = self._keys[1]
        if not self.secure:
            self._call(self._calls.RegisterNode, RegisterNodeFleetRequest(public_key=public))
        request = ActivateNodeRequest(public_key=public, heartbeat_interval=BEATS_SECONDS)
        try:
            self.number = int(self._call(self._calls.ActivateNode, request).node_id)
        except Declined as e:
            raise Declined(
                "the coordinator has a living node under this key: one that was lost less than 20 s ago, or another process with "
                "the same keys, of which only one can take part"
            ) from e
        return self.number

    def end(self, number: int) -> None:
        """Says goodbye; where nobody hears it, its heart is missed after 20 s."""
        from flwr.proto.fleet_pb2 import DeactivateNodeRequest, UnregisterNodeFleetRequest

        try:
            self._call(self._calls.DeactivateNode, DeactivateNodeRequest(node_id=number))
            if not self.secure:
                self._call(self._calls.UnregisterNode, UnregisterNodeFleetRequest(node_id=number))
        except (Declined, Forgotten):
            pass  # it has ended already

    def beat(self) -> None:
        """Once; from a thread and over a connection of its own, so that no long work or letter is in its way."""
        from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest

        request = SendNodeHeartbeatRequest(node=self._node(), heartbeat_interval=BEATS_SECONDS)
        self._call(self._heart.SendNodeHeartbeat, request)

    def next_question(self) -> Question | None:
        """The next letter; None after a while without one."""
        from flwr.common.serde import message_from_proto
        from flwr.proto.fleet_pb2 import PullMessagesRequest
        from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, PullObjectRequest
        from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
        from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

        answer = self._call(self._calls.PullMessages, PullMessagesRequest(node=self._node()))
        if not answer.messages_list:
            return None
        node, message = self._node(), message_from_proto(answer.messages_list[0])
        run, id = message.metadata.run_id, message.metadata.message_id
        ids = [part.object_id for part in iterate_object_tree(answer.message_object_trees[0])]
        requests = [PullObjectRequest(node=node, run_id=run, object_id=part) for part in ids]
        pieces = dict(zip(ids, _at_once(self._fetched, requests)))
        confirmation = ConfirmMessageReceivedRequest(node=node, run_id=run, message_object_id=id)
        self._again(lambda: self._call(self._parcels.ConfirmMessageReceived, confirmation))
        try:
            data = content(inflate_object_from_contents(id, pieces))
        except Exception:  # these bytes come from the network, and Flower's reader raises whatever they make it raise
            data = None
        return Question(data, message)

    def answer(self, question: Question, data: bytes | None) -> None:
        """Sends an answer off, in full; None: that there is none."""
        from flwr.app import Message
        from flwr.app.error import Error
        from flwr.app.message import remove_content_from_message
        from flwr.common.constant import ErrorCode
        from flwr.common.serde import message_to_proto
        from flwr.proto.fleet_pb2 import PushMessagesRequest
        from flwr.proto.message_pb2 import PushObjectRequest
        from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree

        refusal = Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, "refused")
        reply: Any = Message(refusal if data is None else record(data), reply_to=question.message)
        asked = question.message.metadata
        reply.metadata.created_at, reply.metadata.ttl = asked.created_at, asked.ttl  # its clock, not ours
        reply.metadata.__dict__["_message_id"] = reply.object_id
        head = remove_content_from_message(reply) if reply.has_content() else reply
        request = PushMessagesRequest(
            node=self._node(),
            messages_list=[message_to_proto(head)],
            message_object_trees=[get_object_tree(reply)],
            clientapp_runtime_list=[0.0],
        )
        wanted = self._again(lambda: self._call(self._parcels.PushMessages, request))
        missing, parts = set(wanted.objects_to_push), get_all_nested_objects(reply)
        # An answer to an upload comes when all of it has arrived, which may be long after the last byte has left this process.
        self._uploads._client.timeout = _timeout(
            ANSWER_SECONDS + min(len(data or b""), AT_ONCE * PIECE_BYTES) / SLOWEST
        )

        def push(id: str) -> None:
            piece = PushObjectRequest(
                node=self._node(),
                run_id=asked.run_id,
                session_id=wanted.session_id,
                object_id=id,
                object_content=parts[id].deflate(),
            )
            if not self._again(lambda: self._call(self._uploads.PushObject, piece)).stored:
                raise Forgotten("the coordinator does not wait for this answer any more")

        _at_once(push, [id for id in parts if id in missing])

    def close(self) -> None:
        for client in (self._calls, self._parcels, self._uploads, self._heart):
            client.close()

    def _connect(self) -> None:
        self._calls = self._client(ANSWER_SECONDS)
        self._parcels = self._client(ANSWER_SECONDS)
        self._uploads = self._client(ANSWER_SECONDS)
        self._heart = self._client(CONNECT_SECONDS)

    def _fetched(self, request: Any) -> bytes:
        until = time.monotonic() + RESEND_SECONDS
        while True:
            answer = self._again(lambda: self._call(self._parcels.PullObject, request))
            if answer.object_found and answer.object_available:
                return bytes(answer.object_content)
            if not answer.object_found or time.monotonic() > until:
                raise Forgotten("a letter came of which a part is missing")
            time.sleep(0.2)

    def _again(self, call: Callable[[], T]) -> T:
        """Tried anew while the coordinator is away for a moment."""
        until = time.monotonic() + RESEND_SECONDS
        while True:
            try:
                return call()
            except Away:
                if time.monotonic() > until:
                    raise
            time.sleep(1.0)

    def _call(self, method: Callable[[Any], T], request: Any) -> T:
        import httpx

        try:
            return method(request)
        except httpx.HTTPStatusError as e:
            raise _refusal(e.response) from e
        except (httpx.HTTPError, OSError, RuntimeError, ValueError) as e:  # also answers that nobody can read
            raise _failure(e, self.superlink) from e

    def _node(self) -> Any:
        from flwr.proto.node_pb2 import Node

        return Node(node_id=self.number)

    def _client(self, seconds: float) -> Any:
        import httpx
        from flwr.supernode.fleet_http_client import FleetHttpClient

        client = FleetHttpClient(
            f"{'https' if self.secure else 'http'}://{self.superlink}",
            interceptors=[_Signed(*self._keys, self.clock, self.remind)],
            verify=self._tls or False,
        )
        client._client.close()
        client._client = httpx.Client(  # one that keeps its connections from round to round
            verify=self._tls or False,
            timeout=_timeout(seconds),
            limits=httpx.Limits(keepalive_expiry=KEEP_SECONDS),
        )
        return client


@dataclass(frozen=True)
class _Signed:
    """Every call carries Flower's version, the node's key, the time and a signature of it, as Flower and the door want it.

    Not with Flower's own interceptors: to import these brings its web server along (20 MB in every silo), and the one for
    versions ends the process where a server's is another.
    """

    key: Any
    public: bytes
    clock: Clock
    remind: Callable[[Validity], None]

    def intercept(self, context: Any, call_next: Callable[[Any], Any]) -> Any:
        from datetime import UTC, datetime

        from flwr.supercore.primitives.asymmetric import sign_message
        from flwr.supercore.version import package_name, package_version

        asked = self.clock.asked()
        moment = datetime.fromtimestamp(self.clock.now(), UTC).isoformat()
        signature = sign_message(self.key, moment.encode("ascii"))
        headers = {"flwr-public-key": self.public, "flwr-signature": signature}
        signed = {name: b64encode(value).decode("ascii") for name, value in headers.items()}
        versions = {
            "flwr-package-name": package_name,
            "flwr-package-version": package_version,
            "flwr-component-name": "covey",
        }
        context.request.headers.update({**versions, **signed, "flwr-timestamp": moment})
        response = call_next(context)
        if response.request.url.path != "/v1/fleet/pull-messages":  # which is held: nobody knows when it was dated
            self.clock.hear(response.headers.get("date"), asked)
            _show_certificate(response, self.remind)
        return response


def _show_certificate(response: Any, remind: Callable[[Validity], None]) -> None:
    """Until when the certificate holds that the server showed on this answer's connection."""
    stream = response.extensions.get("network_stream")
    tls = stream.get_extra_info("ssl_object") if stream is not None else None
    shown = tls.getpeercert() if tls is not None else None
    if shown and "notAfter" in shown:
        remind(Validity(SERVER, float(ssl.cert_time_to_seconds(shown["notAfter"]))))


def _timeout(seconds: float) -> Any:
    import httpx

    return httpx.Timeout(seconds, connect=CONNECT_SECONDS)


def _at_once(call: Callable[[Any], T], arguments: list[Any]) -> list[T]:
    """A few calls at a time, since most of each is waiting; the first that fails fails all."""
    with ThreadPoolExecutor(AT_ONCE) as workers:
        return list(workers.map(call, arguments))


def trusting(tls: Tls) -> ssl.SSLContext:
    """What trusts the federation's own authority and nobody else."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_verify_locations(tls.ca)
    except OSError as e:
        raise CoveyError(
            f"{tls.ca} cannot be read as a certificate ({e.strerror or e}): copy this party's folder again"
        ) from e
    return context


def _node_keys(tls: Tls | None) -> tuple[Any, bytes]:
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key
    from flwr.supercore.primitives.asymmetric import generate_key_pairs, public_key_to_bytes

    if tls is None:
        private, public = generate_key_pairs()
        return private, public_key_to_bytes(public)
    assert tls.node_key is not None
    try:
        key = load_ssh_private_key(tls.node_key.read_bytes(), None)
    except (OSError, ValueError) as e:
        why = getattr(e, "strerror", None) or "it is no private key in OpenSSH's form"
        raise CoveyError(f"{tls.node_key} cannot be read ({why}): copy this party's folder again") from e
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise CoveyError(f"{tls.node_key} holds no elliptic-curve key: copy this party's folder again")
    return key, public_key_to_bytes(key.public_key())


def _refusal(response: Any) -> CoveyError:
    """What a status means for who is waiting."""
    why = str(response.headers.get(WHY, ""))
    if why == UNKNOWN_KEY:
        return Unknown("the coordinator's door does not know this party's node key")
    if why:
        return Struck(_farewell(*why.partition(" ")[::2]))
    if response.status_code in (401, 403):
        return Forgotten(f"the coordinator answers {response.status_code}")
    if response.status_code >= 500 or response.status_code in (408, 429):
        return Away(f"the coordinator answers {response.status_code}")
    return Declined(f"the coordinator answers {response.status_code}")


def _farewell(why: str, since: str) -> str:
    """What a party is told whose key is let in no more."""
    when = printable(since, 40)
    if why == REPLACED:
        return (
            f"this party's keys were replaced on {when}: accept the invitation for those that it asked for "
            "(`covey keys accept`), and start again"
        )
    return (
        f"revoked by the coordinator on {when}: this party takes part no more; ask the coordinator's owner why, and ask for "
        "admission under another name (`covey keys request`) if you are to come back"
    )


def _failure(error: BaseException, superlink: str) -> CoveyError:
    """What kept a call from being answered, in words."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    if isinstance(cause, ssl.SSLCertVerificationError):
        return certificate_failure(cause, superlink)
    if isinstance(cause, ssl.SSLError) and "WRONG_VERSION_NUMBER" in str(cause):
        return Foreign(f"who answers at {superlink} does not speak TLS: is it covey's server, and not --insecure?")
    return Away(str(error) or type(error).__name__)


NOT_YET_VALID, EXPIRED, OTHER_NAME, OTHER_ADDRESS = 9, 10, 62, 64  # as OpenSSL numbers them


def certificate_failure(error: ssl.SSLCertVerificationError, superlink: str) -> Foreign:
    """Why the server's certificate was not taken, and what to do."""
    host = superlink.rpartition(":")[0]
    if error.verify_code in (NOT_YET_VALID, EXPIRED):
        what = "is not valid yet" if error.verify_code == NOT_YET_VALID else "has expired"
        return Foreign(
            f"the certificate of {superlink} {what} by this machine's clock ({time.strftime('%F %T %Z')}): "
            "set the clock, or have the server's certificate renewed"
        )
    if error.verify_code in (OTHER_NAME, OTHER_ADDRESS):
        return Foreign(
            f"the certificate of {superlink} is for other names: {host} must be among the --hosts that keys are made with"
        )
    return Foreign(
        f"who answers at {superlink} has a certificate of another authority than this party's ca.crt ({error.verify_message}): "
        "another federation's server, other keys than the server's, or somebody in between"
    )

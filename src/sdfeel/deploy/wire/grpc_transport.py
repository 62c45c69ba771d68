"""The real network: gRPC with mutual TLS, one channel for each stream that a node dials."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from sdfeel.deploy.config import Deployment
from sdfeel.deploy.protocol import v1
from sdfeel.deploy.refused import Refused
from sdfeel.deploy.trust.handshakes import explain
from sdfeel.deploy.trust.identity import Credentials, Identity, certificate_of, identify
from sdfeel.deploy.wire import frames
from sdfeel.deploy.wire.rates import CHUNK, CallerRates, Rates
from sdfeel.deploy.wire.transport import Call, Serve, Status, StreamLost, TurnedAway

__all__ = ["GrpcTransport", "call_status", "call_stream", "open_channel"]

METHODS: dict[Call, tuple[str, str, Any, Any]] = {
    Call.WORK: ("sdfeel.v1.Cluster", "Work", v1.FromClient, v1.FromEdge),
    Call.LINK: ("sdfeel.v1.Neighbour", "Link", v1.LinkMessage, v1.LinkMessage),
    Call.MODEL: ("sdfeel.v1.Monitor", "Model", v1.LinkMessage, v1.LinkMessage),
}
STATUS: tuple[str, str, Any, Any] = (
    "sdfeel.v1.Monitor",
    "Status",
    v1.StatusRequest,
    v1.StatusReply,
)
# Bytes that a stream may be ahead of its reader.
WINDOW = 512 * 1024
GRACE = 0.2
SPARE = 64  # streams and connections above the clients': neighbours, operators, the next in line
IDLE_MS = 2_000  # at least: for a handshake, and of a connection without a stream
LOST = (grpc.RpcError, grpc.aio.BaseError, asyncio.InvalidStateError)


class GrpcTransport:
    """Of one node: an edge listens and dials, a client only dials."""

    def __init__(
        self, deployment: Deployment, credentials: Credentials, address: str | None = None
    ) -> None:
        self._deployment, self._credentials, self._address = deployment, credentials, address
        self._server: grpc.aio.Server | None = None
        schedule = deployment.schedule
        exchanges = len(deployment.edges) if schedule.averager == "finite-time" else schedule.alpha
        self._rates = Rates(deployment.deadlines.retry, exchanges)

    async def listen(self, calls: Mapping[Call, Serve], status: Status) -> None:
        limits, ping = self._deployment.limits, self._deployment.deadlines.ping
        self._server = grpc.aio.server(
            options=_server_options(ping, connections_at_most(limits.connections)),
            maximum_concurrent_rpcs=limits.connections + SPARE,
        )
        for call, serve in calls.items():
            self._server.add_generic_rpc_handlers((_handler(METHODS[call], self._stream(serve)),))
        self._server.add_generic_rpc_handlers((_handler(STATUS, self._unary(status)),))
        address = self._address or ""
        if self._credentials.plaintext:
            self._server.add_insecure_port(address)
        else:
            self._server.add_secure_port(address, self._credentials.server())
        await self._server.start()

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(grace=GRACE)

    def _stream(self, serve: Serve) -> Any:
        async def handle(_requests: Any, context: Any) -> None:
            stream = await self._admit(context)
            await _guarded(context, stream, serve(stream))  # type: ignore[arg-type]

        return handle

    def _unary(self, serve: Status) -> Any:
        async def handle(request: v1.StatusRequest | _Malformed, context: Any) -> Any:
            caller = await self._admit(context)
            if isinstance(request, _Malformed):
                caller.refusal, request = request.refusal, v1.StatusRequest()
            return await _guarded(context, caller, serve(request, caller))  # type: ignore[arg-type]

        return handle

    async def _admit(self, context: Any) -> _Served:
        """Wait until the caller's certificate may open a stream; `who` says so if it may not."""
        rates = self._rates.of(certificate_of(context) or context.peer().encode())
        caller = _Served(context, self._credentials, rates)
        try:
            await rates.open_stream()
        except Refused as refusal:
            caller.refusal = refusal
        return caller

    async def dial(self, edge: str, call: Call) -> _Dialled:
        channel = open_channel(self._deployment, self._credentials, edge)
        return _Dialled(channel, call_stream(channel, call), self._credentials)

    async def is_there(self, edge: str) -> bool:
        channel = open_channel(self._deployment, self._credentials, edge)
        try:
            async with asyncio.timeout(self._deployment.deadlines.ping):
                await channel.channel_ready()
        except TimeoutError:
            return False
        finally:
            await channel.close()
        return True


async def _guarded(context: Any, caller: _Served, serve: Coroutine[Any, Any, Any]) -> Any:
    """Serves in a task of its own: ended from outside, the caller is still told so."""
    caller.work = asyncio.ensure_future(serve)
    try:
        await asyncio.wait({caller.work})
        if not caller.work.cancelled():
            return caller.work.result()
    except Refused as refusal:
        await context.abort(grpc.StatusCode.PERMISSION_DENIED, refusal.reason)
    except StreamLost:
        return None  # the caller went away while we wrote to it
    finally:
        caller.work.cancel()
    await context.abort(grpc.StatusCode.ABORTED, caller.reason)
    return None


@dataclass(frozen=True)
class _Malformed:
    """A message that is none: gRPC itself would end the stream, and nobody would be told."""

    size: int

    @property
    def refusal(self) -> Refused:
        return Refused("malformed", f"{self.size} bytes that are no message of the protocol")


def _parser(kind: Any) -> Callable[[bytes], Any]:
    """Return what makes messages of bytes."""

    def parse(data: bytes) -> Any:
        try:
            return kind.FromString(data)
        except DecodeError:
            return _Malformed(len(data))

    return parse


class _Served:
    """A stream that somebody dialled to us.

    refusal  why it is not served, before its caller is looked at
    """

    def __init__(self, context: Any, credentials: Credentials, rates: CallerRates) -> None:
        self._context, self._credentials, self._rates = context, credentials, rates
        self.refusal: Refused | None = None
        self.work: asyncio.Future[Any] | None = None
        self.reason = "this stream was ended"

    def who(self) -> Identity | None:
        if self.refusal is not None:
            raise self.refusal
        return identify(self._context, self._credentials)

    async def read(self) -> Any | None:
        try:
            message = await self._context.read()
        except LOST as problem:
            raise StreamLost(str(problem)) from None
        if message is grpc.aio.EOF:
            return None
        if isinstance(message, _Malformed):
            raise message.refusal
        await self._rates.read_message(CHUNK if message.WhichOneof("body") == "chunk" else 1.0)
        return message

    async def write(self, message: Any) -> None:
        try:
            await self._context.write(message)
        except LOST as problem:
            raise StreamLost(str(problem)) from None

    def close(self, reason: str = "") -> None:
        self.reason = reason or self.reason
        if self.work is not None:
            self.work.cancel()

    async def wait_closed(self) -> None:
        """GRPC does that when the handler returns."""


class _Dialled:
    """A stream that we dialled."""

    def __init__(self, channel: grpc.aio.Channel, call: Any, credentials: Credentials) -> None:
        self._channel, self._call, self._credentials = channel, call, credentials
        self._closing: asyncio.Task[None] | None = None

    def who(self) -> Identity | None:
        """TLS has checked that it is the edge whose name we dialled; gRPC tells no more."""
        return None

    async def read(self) -> Any | None:
        try:
            message = await self._call.read()
            if isinstance(message, _Malformed):
                raise message.refusal
            if message is not grpc.aio.EOF:
                return message
            if await self._call.code() is grpc.StatusCode.OK:
                return None
            raise self._lost(await self._call.code(), await self._call.details())
        except grpc.aio.AioRpcError as problem:
            raise self._lost(problem.code(), problem.details()) from None
        except asyncio.CancelledError:
            if self._is_ours():
                raise
            raise StreamLost("this stream was ended") from None

    async def write(self, message: Any) -> None:
        try:
            await self._call.write(message)
        except grpc.aio.AioRpcError as problem:
            raise self._lost(problem.code(), problem.details()) from None
        except LOST as problem:
            raise StreamLost(str(problem)) from None
        except asyncio.CancelledError:
            if self._is_ours():
                raise
            raise StreamLost("this stream was ended") from None

    def _is_ours(self) -> bool:
        """Whether the task that waits was itself told to end, not only its stream."""
        task = asyncio.current_task()
        return self._closing is None or (task is not None and task.cancelling() > 0)

    def _lost(self, code: grpc.StatusCode, details: str | None) -> StreamLost:
        if code is grpc.StatusCode.PERMISSION_DENIED:
            return TurnedAway(details or "refused")
        return StreamLost(f"{code.name}: {explain(details or '', self._credentials.is_foreign)}")

    def close(self, reason: str = "") -> None:  # noqa: ARG002 - gRPC cannot tell it
        if self._closing is None:
            self._call.cancel()
            self._closing = asyncio.ensure_future(self._channel.close())

    async def wait_closed(self) -> None:
        if self._closing is not None:
            await self._closing


def open_channel(deployment: Deployment, credentials: Credentials, edge: str) -> grpc.aio.Channel:
    """A channel to an edge of the deployment, as a node must open it."""
    options = _channel_options(deployment.deadlines.ping)
    return credentials.channel(deployment.edge(edge).address, edge, options)


def call_stream(channel: grpc.aio.Channel, call: Call) -> Any:
    service, method, request, reply = METHODS[call]
    return channel.stream_stream(
        f"/{service}/{method}",
        request_serializer=request.SerializeToString,
        response_deserializer=_parser(reply),
    )()


def call_status(
    channel: grpc.aio.Channel, timeout: float, question: v1.StatusRequest | None = None
) -> Any:
    service, method, request, reply = STATUS
    call = channel.unary_unary(
        f"/{service}/{method}",
        request_serializer=request.SerializeToString,
        response_deserializer=reply.FromString,
    )
    return call(question or v1.StatusRequest(), timeout=timeout)


def _handler(names: tuple[str, str, Any, Any], serve: Any) -> grpc.GenericRpcHandler:
    service, method, request, reply = names
    make = grpc.stream_stream_rpc_method_handler
    if names is STATUS:
        make = grpc.unary_unary_rpc_method_handler
    handler = make(
        serve,
        request_deserializer=_parser(request),
        response_serializer=reply.SerializeToString,
    )
    return grpc.method_handlers_generic_handler(service, {method: handler})


def _channel_options(ping: float) -> list[tuple[str, int]]:
    """Of both ends. `keepalive_timeout_ms` alone does not notice a frozen peer."""
    wait = int(1000 * ping)
    return [
        ("grpc.keepalive_time_ms", wait),
        ("grpc.keepalive_timeout_ms", wait),
        ("grpc.http2.ping_timeout_ms", wait),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", max(10, wait // 2)),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", max(10, wait // 4)),
        ("grpc.http2.max_ping_strikes", 0),
        ("grpc.max_receive_message_length", frames.MESSAGE_BYTES),
        ("grpc.max_send_message_length", frames.MESSAGE_BYTES),
        ("grpc.max_metadata_size", 8192),
        # Windows that grow with the line's speed cost an edge megabytes for every client.
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.lookahead_bytes", WINDOW),
        ("grpc.enable_retries", 0),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", max(200, wait)),
    ]


def connections_at_most(wanted: int) -> int:
    """What the process can bear: half of its descriptors are for models, checkpoints and logs."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(16, min(wanted + SPARE, soft // 2))


def _server_options(ping: float, connections: int) -> list[tuple[str, int]]:
    idle = max(IDLE_MS, int(1000 * ping))
    return [
        *_channel_options(ping),
        ("grpc.max_concurrent_streams", 8),  # of one connection: a node needs one or two
        # Also of those that never show a certificate, or never say a word after it.
        ("grpc.max_allowed_incoming_connections", connections),
        ("grpc.server_handshake_timeout_ms", idle),
        ("grpc.max_connection_idle_ms", idle),
        ("grpc.so_reuseport", 0),
    ]

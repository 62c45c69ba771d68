"""The calls of the protocol: as an edge serves them and as its callers make them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc

from sdfeel.deploy.protocol import v1

__all__ = ["call_link", "call_status", "call_work", "handlers"]

WORK = ("sdfeel.v1.Cluster", "Work", v1.FromClient, v1.FromEdge)
LINK = ("sdfeel.v1.Neighbour", "Link", v1.LinkMessage, v1.LinkMessage)
STATUS = ("sdfeel.v1.Monitor", "Status", v1.StatusRequest, v1.StatusReply)


def handlers(
    work: Callable[..., Any], link: Callable[..., Any], status: Callable[..., Any]
) -> tuple[grpc.GenericRpcHandler, ...]:
    """What a server must be given to answer all three calls."""
    found = []
    for (service, method, request, reply), serve in ((WORK, work), (LINK, link), (STATUS, status)):
        make = grpc.stream_stream_rpc_method_handler
        if service == STATUS[0]:
            make = grpc.unary_unary_rpc_method_handler
        handler = make(
            serve,
            request_deserializer=request.FromString,
            response_serializer=reply.SerializeToString,
        )
        found.append(grpc.method_handlers_generic_handler(service, {method: handler}))
    return tuple(found)


def call_work(channel: grpc.aio.Channel) -> Any:
    return _stream(channel, WORK)


def call_link(channel: grpc.aio.Channel) -> Any:
    return _stream(channel, LINK)


def call_status(channel: grpc.aio.Channel, timeout: float, nonce: bytes = b"") -> Any:
    service, method, request, reply = STATUS
    call = channel.unary_unary(
        f"/{service}/{method}",
        request_serializer=request.SerializeToString,
        response_deserializer=reply.FromString,
    )
    return call(v1.StatusRequest(nonce=nonce), timeout=timeout)


def _stream(channel: grpc.aio.Channel, names: tuple[str, str, Any, Any]) -> Any:
    service, method, request, reply = names
    call = channel.stream_stream(
        f"/{service}/{method}",
        request_serializer=request.SerializeToString,
        response_deserializer=reply.FromString,
    )
    return call()

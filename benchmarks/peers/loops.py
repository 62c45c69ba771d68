"""Loops of one's own: plain, over two processes, and compiled over all clients by vmap.

Every client has its data in memory; a batch is a slice; the update is in place.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F  # noqa: N812 - as everybody writes it
from workload import BATCH, RATE, STEPS, Rounds, arguments, data, network

Pair = tuple[Tensor, Tensor]


def train(model: nn.Module, pairs: Sequence[Pair], start: Sequence[Tensor]) -> list[Tensor]:
    """Train clients one after the other, each from `start`; return the sum of their models."""
    parameters = list(model.parameters())
    sums = [torch.zeros_like(value) for value in start]
    for images, labels in pairs:
        with torch.no_grad():
            torch._foreach_copy_(parameters, list(start))
        for step in range(STEPS):
            rows = slice(step * BATCH, (step + 1) * BATCH)
            loss = F.cross_entropy(model(images[rows]), labels[rows])
            gradients = torch.autograd.grad(loss, parameters)
            with torch.no_grad():
                torch._foreach_sub_(parameters, gradients, alpha=RATE)
        torch._foreach_add_(sums, [value.detach() for value in parameters])
    return sums


def plain(pairs: Sequence[Pair], rounds: int, notes: Rounds) -> None:
    """One process, with all of torch's threads."""
    model = network()
    start = [value.detach().clone() for value in model.parameters()]
    for _ in range(rounds):
        start = [total / len(pairs) for total in train(model, pairs, start)]
        notes.ended()


def _worker(pairs: Sequence[Pair], inbox: object, outbox: object) -> None:
    torch.set_num_threads(1)
    model = network()
    while (start := inbox.get()) is not None:  # type: ignore[attr-defined]
        outbox.put(train(model, pairs, start))  # type: ignore[attr-defined]


def processes(pairs: Sequence[Pair], rounds: int, notes: Rounds) -> None:
    """Two processes with one thread each, half of the clients in each."""
    context = torch.multiprocessing.get_context("fork")
    inboxes, outbox = [context.SimpleQueue() for _ in range(2)], context.SimpleQueue()
    torch.set_num_threads(1)
    workers = [
        context.Process(target=_worker, args=(pairs[place::2], inboxes[place], outbox), daemon=True)
        for place in range(2)
    ]
    for worker in workers:
        worker.start()
    start = [value.detach().clone() for value in network().parameters()]
    for _ in range(rounds):
        for inbox in inboxes:
            inbox.put(start)
        first, second = outbox.get(), outbox.get()
        start = [(a + b) / len(pairs) for a, b in zip(first, second, strict=True)]
        notes.ended()
    for inbox in inboxes:
        inbox.put(None)


def compiled_vmap(pairs: Sequence[Pair], rounds: int, notes: Rounds) -> None:
    """All clients in one call of a compiled function."""
    model = copy.deepcopy(network())
    images = torch.stack([pair[0] for pair in pairs])
    labels = torch.stack([pair[1] for pair in pairs])
    mean = {name: value.detach().clone() for name, value in model.named_parameters()}

    def loss_of(values: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(functional_call(model, values, (x,)), y)

    def step(values: dict[str, Tensor], x: Tensor, y: Tensor) -> dict[str, Tensor]:
        gradients = vmap(grad(loss_of))(values, x, y)
        return {name: values[name] - RATE * gradients[name] for name in values}

    fast = torch.compile(step)
    for _ in range(rounds):
        values = {name: value.expand(len(pairs), *value.shape) for name, value in mean.items()}
        values = {name: value.contiguous() for name, value in values.items()}
        for number in range(STEPS):
            rows = slice(number * BATCH, (number + 1) * BATCH)
            values = fast(values, images[:, rows], labels[:, rows])
        mean = {name: value.mean(0) for name, value in values.items()}
        notes.ended()


if __name__ == "__main__":
    chosen, notes = arguments(), Rounds()
    how = {"plain": plain, "processes": processes, "vmap": compiled_vmap}[chosen.how]
    how(data(chosen.clients, chosen.samples), chosen.rounds, notes)
    notes.report()

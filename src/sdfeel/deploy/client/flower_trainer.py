"""A Flower app as a client of a deployment.

What it knows of the model is what the first model's file says: names, shapes and order of the
arrays. Its run_config is `local.options`, its node_config `local.node_config`, and what every
message tells it `local.train_config`; the state that it keeps lies in `state/NAME` beside the
deployment file, so that a client that was started again goes on with it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from sdfeel.algorithm.trainer import Model
from sdfeel.deploy.config import Deployment
from sdfeel.deploy.model.files import ModelFile, read_model
from sdfeel.errors import InputError
from sdfeel.files import write_atomically
from sdfeel.flower.apps import find_app
from sdfeel.flower.arrays import ArrayLayout, Piece
from sdfeel.flower.client import FlowerClient
from sdfeel.flower.nodes import checked_config, node_configs, plain_config
from sdfeel.flower.trainer import FlowerTrainer

__all__ = ["KeepingTrainer", "flower_trainer"]


def flower_trainer(deployment: Deployment, client: str, path: str) -> KeepingTrainer:
    """The app at an import path, for the client of that name."""
    app = find_app("local.trainer", path, deployment.folder)
    names = [c.name for c in deployment.clients]
    me = deployment.client(client)
    layout = _layout(deployment.path(deployment.model.initial))
    local, number = deployment.local, names.index(client)
    run_config = plain_config("local.options", local.options)
    node_config = node_configs(local.node_config, len(names))[number]
    flower = FlowerClient(
        app, layout, client, number, len(names), run_config, node_config, deployment.seed
    )
    config = checked_config("local.train_config", local.train_config)
    every = deployment.evaluate_every if deployment.evaluation.samples else 0

    def look(done: int, steps: int) -> bool:
        return bool(every) and (done == 0 or done // every > (done - steps) // every)

    trainer = FlowerTrainer(
        flower, me.samples, deployment.lr, lambda _: config, lambda _: config, look
    )
    return KeepingTrainer(trainer, deployment.folder / "state" / client / "flower")


class KeepingTrainer:
    """A trainer with the app's state on the disk. One of a later round than is asked for is not
    used: the deployment was begun anew, or rolled back.
    """

    def __init__(self, own: FlowerTrainer, path: Path) -> None:
        self._own, self._path, self._read = own, path, False

    @property
    def samples(self) -> int:
        return self._own.samples

    @property
    def size(self) -> int:
        return self._own.size

    @property
    def measures(self) -> Mapping[str, float]:
        return self._own.measures

    def train(self, model: Model, first: int, steps: int) -> Model:
        if not self._read and self._path.exists():
            number, _, memory = self._path.read_bytes().partition(b"\n")
            if number.isdigit() and int(number) < first:
                self._own.recall(memory)
        self._read = True
        trained: Model = self._own.train(np.asarray(model, dtype=np.float32), first, steps)
        if memory := self._own.remember():
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self._path, b"%d\n%b" % (first, memory))
        return trained


def _layout(path: Path) -> ArrayLayout:
    """From the notes in the file of the first model."""
    file = read_model(path, constants=True)
    try:
        arrays = [(str(name), str(kind)) for name, kind in json.loads(file.notes["arrays"])]
        tied = dict(json.loads(file.notes.get("tied", "{}")))
        return ArrayLayout([_piece(file, tied, *each) for each in arrays], file.layout.size)
    except (KeyError, ValueError, TypeError, AttributeError):
        raise InputError(
            "model.initial", str(path), "has no names of arrays: `sdfeel provision model`"
        ) from None


def _piece(file: ModelFile, tied: dict[str, str], name: str, kind: str) -> Piece:
    if name in file.constants:
        constant = file.constants[name]
        return Piece(name, kind, constant.shape, None, constant.data)
    at = file.layout.names.index(tied.get(name, name))
    start = sum(file.layout.sizes[:at])
    return Piece(name, kind, file.layout.shapes[at], start, twin=name in tied)

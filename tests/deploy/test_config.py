"""Deployment files: every mistake is named, unknown keys get the nearest right one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from harness import as_toml, content

from sdfeel.deploy.client.trainers import make_trainer
from sdfeel.deploy.config import load_deployment, parse_deployment
from sdfeel.deploy.topology import Topology
from sdfeel.errors import InputError


def test_the_example_is_valid() -> None:
    example = Path(__file__).parents[2] / "examples" / "deployment" / "demo.toml"
    topology = Topology(load_deployment(example))
    assert (topology.at(0).network.servers, topology.at(0).network.clients) == (3, 9)


def test_a_file_read_back_is_the_same(tmp_path: Path) -> None:
    table = content((2, 1), server_optimizer={"name": "fedadam", "eta": 0.01})
    file = tmp_path / "d.toml"
    file.write_text(as_toml(table))
    assert load_deployment(file) == parse_deployment(table, tmp_path)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"shedule": {}}, "did you mean 'schedule'"),
        ({"schedule": {"iterations": 4, "tau_1": 2}}, "did you mean 'tau1'"),
        ({"schedule": {"iterations": 5, "tau1": 2}}, "multiple of tau1"),
        ({"schedule": {"iterations": 4, "averager": "exact"}}, "all-reduce"),
        ({"schedule": {"iterations": 4, "averager": "papr"}}, "did you mean 'paper'"),
        ({"deadlines": {"round": 9.0, "exchange": 8.0}}, "must exceed deadlines.round"),
        ({"edges": [{"name": "a", "adress": "x:1"}]}, "did you mean 'address'"),
        ({"edges": [{"name": "a", "address": "no-port"}]}, "edges.0.address"),
        ({"clients": [{"name": "c0", "edge": "z", "samples": 1}]}, "clients.c0"),
        ({"clients": [{"name": "c0", "edge": "a", "samples": 0}]}, "clients.0.samples"),
        ({"graph": {"links": [("a", "q")]}}, "graph.links"),
        ({"graph": {"kind": "rnig"}}, "did you mean 'ring'"),
        ({"codecs": {"up": "int9"}}, "codecs.up = 'int9': did you mean 'int8'"),
        ({"codecs": {"upp": "int8"}}, "did you mean 'up'"),
        (
            {
                "codecs": {"between": "int8"},
                "pace": {"name": "asynchronous", "deadline": 1.0, "mixing": "stale-weights"},
            },
            "codecs.between = 'int8': needs swaps on which both ends decide",
        ),
        ({"codecs": {"up": "own_methods:nothing"}}, "codecs.up = 'own_methods:nothing': cannot be"),
        ({"codecs": {"up": "own_methods:Wordless"}}, "needs layout"),
        ({"codecs": {"up": "collections:OrderedDict"}}, "codecs.up = .*must make a Codec"),
        ({"codecs": {"up": {"name": "own_methods:Sign", "scael": 1}}}, "codecs.scael = 1: .*scale"),
        ({"local": {"momentun": 0.9}}, "did you mean 'momentum'"),
        ({"local": {"batchsize": 9}}, "did you mean 'batch_size'"),
        ({"local": {"name": "momentm"}}, "did you mean 'momentum'"),
        ({"local": {"name": []}}, r"local.name = \[\]"),
        ({"local": {"momentum": 0.9}}, "local.momentum = 0.9: unknown key"),
        ({"local": {"name": "momentum", "momentum": 1.5}}, "local.momentum = 1.5: .* below 1"),
        ({"local": {"clip": 0}}, "local.clip"),
        ({"local": {"memory": 3}}, "local.memory = 3"),
        ({"local": {"weight_decay": 10**400}}, "local.weight_decay"),
        ({"rate": {"name": "cosine"}}, "rate.over = None: is needed"),
        ({"rate": {"name": "cosine", "over": 9, "floor": 1.0}}, "from 0 to lr = 0.01"),
        ({"rate": {"name": "cosine", "over": 9, "warmpu": 1}}, "rate.warmpu = 1: .*'warmup'"),
        ({"rate": {"eta": 0.1}}, "the rate itself is local.lr"),
        ({"correction": {"name": "two"}}, "correction.name = 'two': did you mean"),
        ({"correction": {"gama": 1}}, "correction.gama = 1: .*'gamma'"),
        ({"correction": {"gamma": 5.0}}, "correction.gamma = 5.0: at most"),
        (
            {"correction": "two-level", "pace": {"name": "asynchronous", "deadline": 1.0}},
            "correction = 'two-level': needs rounds of all servers; not so with the pace",
        ),
        (
            {"correction": "clients", "pace": {"name": "asynchronous", "deadline": 1.0}},
            "correction = 'clients': works in rounds only in a deployment",
        ),
        (
            {"correction": "clients", "averaging": {"rule": "median"}},
            "correction = 'clients': needs servers that take the mean .* median",
        ),
        (
            {"correction": "clients", "codecs": {"up": "top-k"}},
            "correction = 'clients': needs messages with all values",
        ),
        (
            {"correction": "two-level", "local": {"name": "adam"}},
            "correction = 'two-level': needs an optimizer that is affine",
        ),
        (
            {"correction": "two-level", "local": {"name": "momentum", "memory": "keep"}},
            "correction = 'two-level': needs optimizers that begin anew",
        ),
        (
            {"correction": "servers", "local": {"trainer": "flower:app"}},
            "correction = 'servers': shifts gradients",
        ),
    ],
)
def test_mistakes_are_named(tmp_path: Path, change: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError, match=named):
        Topology(parse_deployment(content((1, 1)) | change, tmp_path))


def test_a_correction_takes_no_guests(tmp_path: Path) -> None:
    table = content((1, 1), fallback=True, correction="two-level")
    with pytest.raises(InputError, match=r"clients.c0.fallbacks.* nobody is a guest"):
        parse_deployment(table, tmp_path)
    table = content((1, 1), correction="two-level")
    table["edges"][0]["allow"] = ["c0", "c1"]
    with pytest.raises(InputError, match=r"edges.a.allow.* nobody is a guest"):
        parse_deployment(table, tmp_path)


def test_names_appear_once(tmp_path: Path) -> None:
    table = content((2, 1))
    table["clients"][1]["name"] = "c0"
    with pytest.raises(InputError, match="may appear once"):
        parse_deployment(table, tmp_path)


def test_plain_text_is_for_loopback_only(tmp_path: Path) -> None:
    table = content((1,)) | {"security": {"plaintext": True}}
    parse_deployment(table, tmp_path)
    table["edges"][0]["address"] = "10.0.0.1:7001"
    with pytest.raises(InputError, match="loopback only"):
        parse_deployment(table, tmp_path)
    table["edges"][0] |= {"address": "127.0.0.1:7001", "listen": "0.0.0.0:7001"}
    with pytest.raises(InputError, match="loopback only"):
        parse_deployment(table, tmp_path)


def test_an_averager_that_would_drown_in_rounding_is_refused(tmp_path: Path) -> None:
    table = content((1,) * 14, averager="finite-time", links=None)
    table["graph"] = {"kind": "path"}
    for number, client in enumerate(table["clients"]):
        client["samples"] = 1 + 400 * (number % 3)
    with pytest.raises(InputError, match="all-reduce"):
        Topology(parse_deployment(table, tmp_path))


def test_a_flower_app_takes_no_optimizer(tmp_path: Path) -> None:
    """It would do nothing, and nobody would say so."""
    local = {"trainer": "flower:my_app:app", "name": "momentum"}
    deployment = parse_deployment(content((1,), local=local), tmp_path)
    with pytest.raises(InputError, match="an optimiser of its own"):
        make_trainer(deployment, "c0")

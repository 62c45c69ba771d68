from __future__ import annotations

import importlib
import inspect
import pkgutil
import subprocess
import sys

import pytest

import sdfeel

PUBLIC = [
    "AVERAGERS",
    "CODECS",
    "CORRECTIONS",
    "GRAPHS",
    "OPTIMIZERS",
    "RATES",
    "SCHEMES",
    "SERVER_OPTIMIZERS",
    "SGD",
    "Adam",
    "AdamW",
    "Affine",
    "Asynchronous",
    "Attacks",
    "Averager",
    "AveragingRule",
    "ClientData",
    "Clipped",
    "Codec",
    "Comparison",
    "Constant",
    "Correction",
    "Cosine",
    "Deadline",
    "Exchange",
    "FedAdagrad",
    "FedAdam",
    "FedAsync",
    "FedAvgM",
    "FedBuff",
    "FedYogi",
    "InputError",
    "Inverse",
    "LatencyProfile",
    "Lie",
    "Method",
    "Momentum",
    "Network",
    "Optimizer",
    "Pace",
    "Plan",
    "Rate",
    "Result",
    "Row",
    "RunError",
    "Schedule",
    "Scheme",
    "SdfeelError",
    "ServerOptimizer",
    "Step",
    "Synchronous",
    "Trainer",
    "Trimmed",
    "compare",
    "load",
    "load_profile",
    "plan",
    "train",
]
ROOMS = ["network", "clock", "data", "models"]


def test_the_public_names_are_these_and_no_others() -> None:
    """Adding one is a promise: it is written down here, on purpose."""
    assert sorted(sdfeel.__all__) == sorted(PUBLIC)


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_there_and_says_what_it_is(name: str) -> None:
    member = getattr(sdfeel, name)
    if inspect.isclass(member) or inspect.isfunction(member):
        assert inspect.getdoc(member)
        assert name in dir(sdfeel)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="trian"):
        sdfeel.trian  # noqa: B018


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_export_what_they_say(room: str) -> None:
    module = importlib.import_module(f"sdfeel.{room}")
    for name in module.__all__:
        assert hasattr(module, name)
    assert len(set(module.__all__)) == len(module.__all__)


def test_every_module_says_what_it_exports_and_has_it() -> None:
    for room in (*ROOMS, "algorithm", "engines", "simulation", "records", "planner"):
        package = importlib.import_module(f"sdfeel.{room}")
        for found in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
            module = importlib.import_module(found.name)
            assert module.__doc__, found.name
            for name in getattr(module, "__all__", []):
                assert hasattr(module, name), f"{found.name}.{name}"


def test_importing_sdfeel_does_not_wait_for_torch() -> None:
    code = "import sys, sdfeel; sdfeel.Network; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

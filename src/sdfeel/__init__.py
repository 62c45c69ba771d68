"""Semi-decentralized federated edge learning: simulate it, plan it, run it.

>>> import sdfeel
>>> sdfeel.Network.ring(servers=10, clients_per_server=5)
Network(50 clients, 10 servers, 10 links)
"""

from sdfeel.api import Result, train
from sdfeel.clock import LatencyProfile, load_profile
from sdfeel.data import ClientData
from sdfeel.errors import InputError, RunError, SdfeelError
from sdfeel.network import AVERAGERS, GRAPHS, Network
from sdfeel.training.schedule import Schedule
from sdfeel.training.schemes import SCHEMES, Scheme

__version__ = "0.1.0"

__all__ = [
    "AVERAGERS",
    "GRAPHS",
    "SCHEMES",
    "ClientData",
    "InputError",
    "LatencyProfile",
    "Network",
    "Result",
    "RunError",
    "Schedule",
    "Scheme",
    "SdfeelError",
    "load_profile",
    "train",
]

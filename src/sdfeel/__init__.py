"""Semi-decentralized federated edge learning: simulate it, plan it, run it.

>>> import sdfeel
>>> sdfeel.Network.ring(servers=10, clients_per_server=5)
Network(50 clients, 10 servers, 10 links)
"""

import lazy_loader

# The public names stand in `__init__.pyi`. Each is imported when it is first used: torch takes
# seconds to import, and `sdfeel --help` should not wait for it.
__getattr__, __dir__, _names = lazy_loader.attach_stub(__name__, __file__)

__version__ = "0.1.0"
__all__ = [name for name in _names if name not in ("callbacks", "data")]

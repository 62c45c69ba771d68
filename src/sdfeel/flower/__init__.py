"""The flower room: a Flower `ClientApp` as a client, unchanged and in this process.

Flower comes with `sdfeel[flower]`. Its telemetry is off here, unless FLWR_TELEMETRY_ENABLED says
otherwise.
"""

import os
import sys

from sdfeel.errors import InputError

if "FLWR_TELEMETRY_ENABLED" not in os.environ:
    os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
    if (_telemetry := sys.modules.get("flwr.supercore.telemetry")) is not None:
        vars(_telemetry)["FLWR_TELEMETRY_ENABLED"] = "0"  # it has read the environment already

try:
    import flwr as _flwr
except ImportError:
    remedy = "a Flower app needs more packages: pip install '.[flower]' in a clone of sdfeel"
    raise InputError("installation", "flwr", remedy) from None
del _flwr

"""The deployment room: edge servers and clients as programs that train over a real network."""

import os

# Why a handshake failed is said by gRPC alone, below the level to which flwr sets it for its whole
# process and all that is started from there.
if os.environ.get("GRPC_VERBOSITY", "").lower() == "error":
    del os.environ["GRPC_VERBOSITY"]

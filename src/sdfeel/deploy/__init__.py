"""The deployment room: edge servers and clients as programs that train over a real network."""

"""The clients of an edge: their streams, what they send, and its mean, eq. (3)."""

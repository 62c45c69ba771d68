"""Models as vectors: in memory and files, on the wire, and on disk as checkpoints."""

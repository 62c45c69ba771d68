"""The records room: run folders and checkpoints, written and read."""

"""What a node tells about itself while it runs: facts, and the log, metrics and status of them."""

"""What a node tells about itself while it runs: logs and metrics."""

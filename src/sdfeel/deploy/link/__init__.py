"""One link between neighbours: its stream, what its two ends agree on, and which links are up."""

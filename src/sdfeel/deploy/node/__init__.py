"""The two kinds of node: an edge server with its periods, and a client with its trainer."""

"""Exchanges of models over links, eq. (5): between neighbours, and as an all-reduce."""

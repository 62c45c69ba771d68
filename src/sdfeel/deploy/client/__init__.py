"""The client: connects, trains, uploads."""

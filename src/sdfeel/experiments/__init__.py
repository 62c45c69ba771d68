"""The experiments room: runs, comparisons and the reproduction, described by TOML files."""

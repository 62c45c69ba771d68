"""The experiments room: runs and comparisons described by TOML files."""

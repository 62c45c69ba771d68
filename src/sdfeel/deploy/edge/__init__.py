"""The edge server: its periods, what it answers, what it records."""

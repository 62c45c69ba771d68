"""Links to neighbouring edge servers: streams, the agreement of two ends, exchanges of eq. (5)."""

"""The planner room: which schedule to use, and the evidence for it."""

"""The training room: the schedule, the schemes, the loop of Algorithm 1, records, checkpoints."""

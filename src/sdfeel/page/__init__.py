"""The page room: the live page of runs and deployments; it reads, and changes nothing."""

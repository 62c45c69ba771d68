"""The simulation room: the state, the loop of Algorithm 1, and what carries it out."""

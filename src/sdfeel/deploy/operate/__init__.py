"""What an operator starts and asks: the programs, a launch on one machine, the status."""

"""What a deployment costs beyond computing, measured between real processes."""

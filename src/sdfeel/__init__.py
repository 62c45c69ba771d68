"""Semi-decentralized federated edge learning."""

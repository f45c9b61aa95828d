"""Configurations of the GPT-2 family, as JSON files; their weights are random, by seed."""

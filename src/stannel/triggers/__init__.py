"""Waiting: the contract of triggers, and the triggers that come with the engine."""

"""Answers what running tasks ask, from the store."""

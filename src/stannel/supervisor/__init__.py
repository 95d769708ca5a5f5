"""Runs one attempt in a process of its own and stays with it to the end."""

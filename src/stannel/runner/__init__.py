"""The Python task process: what runs in a fork, on the task's side of the wire."""

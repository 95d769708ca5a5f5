"""Stannel: an Airflow-compatible workflow engine in one small program."""

__version__ = "0.1.0"

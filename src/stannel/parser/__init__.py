"""Watches the DAG folder and keeps the store's picture of it current."""

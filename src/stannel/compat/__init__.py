"""Lets DAG files written for Apache Airflow run as they are."""

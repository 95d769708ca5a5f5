"""Assets as authors write them: what tasks produce, what DAGs wait for, and who watches the world outside."""

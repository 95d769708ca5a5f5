"""The process that runs triggers. It holds no database and no keys; all it can do is speak with the triggerer."""

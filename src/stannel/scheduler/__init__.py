"""The program that creates runs, advances them and queues their tasks; what it decides is pure and lives beside it."""

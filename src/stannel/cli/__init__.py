"""The command line: wires programs together, and shows people what is in the store."""

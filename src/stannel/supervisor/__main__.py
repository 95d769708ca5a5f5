"""Starts a fork server; a module of its own, so that the server's code is loaded once and under its real name."""

import sys

from stannel.supervisor.forkserver import main

main(sys.argv[1:])

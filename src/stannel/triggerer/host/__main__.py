"""`python -m stannel.triggerer.host FD [SLOT_FD]`: FD is the socket to the triggerer."""

import sys

from stannel.triggerer.host.main import main

main(sys.argv[1:])

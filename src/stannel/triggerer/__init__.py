"""The triggerer: runs triggers while their tasks wait, and stores what they fire."""

"""The commands but `seed`, a module each; cli.py imports the one that is called."""

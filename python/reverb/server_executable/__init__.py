"""The server program: its config, and tables made from it."""

"""dm-reverb's place for the server program, its config, and tables made from it."""

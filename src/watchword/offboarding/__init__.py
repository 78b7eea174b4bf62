"""What an actor has, and what is taken from it."""

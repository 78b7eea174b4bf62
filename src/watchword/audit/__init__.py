"""Search and follow events, send them on."""

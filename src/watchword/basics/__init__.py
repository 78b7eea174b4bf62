"""Errors, names, secrets, networks, times, pages of lists, files, background tasks."""

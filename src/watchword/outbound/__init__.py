"""Requests to strangers, in a process of its own."""

"""Peers: other keepers of tokens, installed by package name into `.peers`, asked in the same run for the same work."""

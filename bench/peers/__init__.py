"""Peers: other token services, installed by package name into `.peers`, asked in the same run for the same work."""

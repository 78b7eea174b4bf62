"""Policies, groups, actors: list and change what authority/ decides by."""

"""Decides: callers, grants, privileges, what policies grant, limits of tokens, rejections."""

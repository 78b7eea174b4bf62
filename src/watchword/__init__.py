"""Watchword: policy-governed access tokens over GraphQL, dead the moment they are revoked."""

__version__ = "0.1.0"

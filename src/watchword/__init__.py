"""Watchword: policy-governed access tokens over GraphQL, rejected as soon as they are revoked."""

__version__ = "0.1.0"

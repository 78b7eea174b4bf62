"""Signing: tokens are EdDSA JWTs, made by keys that lie sealed in the store."""

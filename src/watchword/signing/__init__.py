"""Tokens are EdDSA JWTs. The store holds the signing keys, sealed."""

"""Webhooks and mail."""

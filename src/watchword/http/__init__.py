"""Requests, pages, logs, budgets; graphql/ documents, context, fast path."""

"""The port (transaction.py: Database, Transaction, Dialect), the schema, sqlite/ and postgres/."""

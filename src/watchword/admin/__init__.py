"""Backup, restore, copy, check, doctor."""

"""Service accounts, and what a policy file declares of them and of groups."""

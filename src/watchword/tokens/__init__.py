"""Issue, rotate, revoke, list, verify, introspect, count; keys."""

"""An event, and how it is written with its change; what must still hold when a change is committed."""

"""Rules, plans and runs; sets and releases legal holds."""

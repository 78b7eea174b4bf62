"""Server, workers, routes, health, metrics; services.py joins the services, wiring.py opens everything."""

"""Authentication of requests, sessions, OpenID Connect, device authorization."""

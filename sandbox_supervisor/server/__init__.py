"""The HTTP and WebSocket endpoints of a supervisor, over TLS. Only the control plane holds the bearer."""

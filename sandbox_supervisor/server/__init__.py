"""The HTTP and WebSocket endpoints of a supervisor, over TLS inside the sandbox. Only the control plane holds the bearer."""

"""How the control plane reaches a supervisor, and how a browser reaches it through the control plane."""

"""Programs for command nodes: they come with the sandbox image and need nothing but the standard library."""

"""One try at a node: where it starts from, what it is told, what it leaves behind. Opens no path in a tree."""

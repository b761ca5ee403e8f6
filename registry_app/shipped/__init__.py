"""What comes with the product: two flows, and the project on which the demo works."""

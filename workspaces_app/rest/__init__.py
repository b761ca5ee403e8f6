"""What every REST view of the project stands on: who asks, what may be in a question, how much, and page by page."""

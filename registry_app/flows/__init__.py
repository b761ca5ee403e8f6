"""The flow compiler: text in, a frozen flow with its worst case out, or every problem at once."""

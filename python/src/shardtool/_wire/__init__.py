"""The child processes, and what goes to them and comes back."""

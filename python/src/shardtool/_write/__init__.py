"""Writing: what Writer and optimize are made of."""

"""Reading: what Loader, Dataset and open are made of."""

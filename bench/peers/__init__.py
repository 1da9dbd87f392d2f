"""Other servers over a model of the same size, each in its own environment."""

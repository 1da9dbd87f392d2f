"""A server under load: what it answers, how soon, and what it does with too much."""

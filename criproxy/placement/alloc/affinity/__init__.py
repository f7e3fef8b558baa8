"""Affinities between containers, and the expressions that select them."""

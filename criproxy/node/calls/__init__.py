"""Held, watched and edited calls: one file for each kind."""

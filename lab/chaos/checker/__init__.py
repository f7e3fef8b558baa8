"""Looks at a node from outside while criproxy is killed on it.

A program of its own that imports nothing of criproxy but CRI's messages. It believes cgroups (read every 5 ms), the
runtime, and what a journal says that pods asked for. criproxy's database is only compared.
"""

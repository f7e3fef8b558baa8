"""Looks at a node from outside while criproxy is killed on it.

A program of its own that imports nothing of criproxy. It believes cgroups (read every 5 ms), the runtime (asked with
calls that it decodes itself), and what a journal says that pods asked for. criproxy's database is only compared.
"""

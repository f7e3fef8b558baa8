"""NVIDIA's formats and rules, pure: its device plugin's file ``version: v1``, what it offers, allocates and labels."""

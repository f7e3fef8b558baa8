"""NVIDIA's formats and rules, pure: the file ``version: v1`` of its device plugin; offers, allocation and labels."""

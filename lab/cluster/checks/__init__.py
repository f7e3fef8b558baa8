"""What is checked in the cluster: each function is a check, named by its docstring, and returns figures."""

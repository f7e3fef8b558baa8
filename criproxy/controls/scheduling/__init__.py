"""How the threads of containers are scheduled: policy, priority, nice and I/O priority."""

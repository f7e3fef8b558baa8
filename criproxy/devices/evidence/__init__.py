"""Which cards a container got: what its request, the kubelet and CDI say."""

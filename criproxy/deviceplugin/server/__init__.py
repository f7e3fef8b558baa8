"""The kubelet's device plugin API: registration, ListAndWatch, Allocate."""

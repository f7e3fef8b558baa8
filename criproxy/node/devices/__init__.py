"""The boundary around accelerators: evidence from the kubelet, and the rules applied to a create."""

"""The configuration of the device plugin: its options, the policy file and NVIDIA's file together."""

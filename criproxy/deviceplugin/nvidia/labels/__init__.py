"""The labels that NVIDIA's feature discovery writes."""

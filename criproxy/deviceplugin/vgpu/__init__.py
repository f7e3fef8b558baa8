"""vGPUs: cards and MIG devices that are divided into profiles."""

"""A tenant who means harm: pods whose every text and number is at its limits and beyond, among pods that behave."""

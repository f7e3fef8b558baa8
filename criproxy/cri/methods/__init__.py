"""The methods of CRI: which are held, which are read only, how they are logged."""

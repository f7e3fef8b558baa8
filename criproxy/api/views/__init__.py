"""Pure: the contents of status, explain and devices, as JSON values."""

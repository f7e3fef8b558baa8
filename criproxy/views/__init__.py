"""Pure: what status, explain and devices show, as values that JSON can say."""

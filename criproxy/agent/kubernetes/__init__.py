"""The API server: bounded requests, credentials, and objects that are followed."""

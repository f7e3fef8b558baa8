"""The section `devices` of the policy file."""

"""Classes: what a policy file sets on containers and on their CPUs beside a place (the option ``classes``)."""

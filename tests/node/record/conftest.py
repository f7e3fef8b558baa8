"""What tests of the node's state need."""

from tests.patience import patient_readers

__all__ = ["patient_readers"]

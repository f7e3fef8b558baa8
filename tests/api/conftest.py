"""The history is read as soon as the last decisions are explained, however long a busy machine takes for that."""

from tests.patience import patient_readers

__all__ = ["patient_readers"]

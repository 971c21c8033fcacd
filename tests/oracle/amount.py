"""Say how many random cases an oracle tries: few in the suite, all with ``MS_TUNE_TEST_MORE`` (``.ci/nightly``)."""

import os


def cases(few: int, whole: int) -> int:
    """Return ``MS_TUNE_ORACLE_CASES``, or the number for the suite, or for a run that leaves nothing out; seeds are the tests' own."""
    number = whole if "MS_TUNE_TEST_MORE" in os.environ else few
    return int(os.environ.get("MS_TUNE_ORACLE_CASES", number))

"""Arguments that are wrong in random ways are refused, or give what torch gives."""

from tools.torture_calls import SUBJECTS, tortured


def test_random_wrong_arguments():
    outcome = tortured(seed=7, calls=100)
    assert outcome.wrong == []
    counts = outcome.counts
    assert counts["refused"] > 100 and counts["right arguments"] > 10 * len(SUBJECTS)

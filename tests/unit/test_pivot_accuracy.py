"""The paper's table of pivot accuracy, counted by hand."""

from r3l.evaluation.pivot_accuracy import Diagnosis, PivotAccuracy, pivot_accuracy


def test_shares_by_hand():
    """Distances 0, 0, 1, 2, 3, 4, 9, 1: agreement 4 of 8, accurate 2, partial 4 (1, 2, 3, 1), misdiagnosed 2.

    Of the agreeing ones three were retried and two won; of the four others two were retried and none won.
    """
    diagnoses = [Diagnosis(5, 5, True), Diagnosis(0, 0, None), Diagnosis(3, 4, True), Diagnosis(6, 4, False), Diagnosis(1, 4, None),
                 Diagnosis(8, 4, False), Diagnosis(0, 9, None), Diagnosis(5, 4, False)]
    assert pivot_accuracy(diagnoses) == PivotAccuracy(8, 4 / 8, 2 / 8, 4 / 8, 2 / 8, 2 / 3, 0 / 2)


def test_nothing_to_divide_by():
    assert pivot_accuracy([]) == PivotAccuracy(0, None, None, None, None, None, None)
    only = pivot_accuracy([Diagnosis(2, 2)])
    assert (only.agreement, only.won_given_right, only.won_given_wrong) == (1.0, None, None)

"""Intervals of medians, the choice between rank tests, and verdicts, against published tables and values computed by hand."""

import itertools
import math
import unittest

import numpy as np

from stp_plots.judge.statistics import Rule, Sample, holm, judge, least_p, mann_whitney, median_interval, shapley


def first_numbers(count):
    return np.arange(1, count + 1)


class MedianInterval(unittest.TestCase):
    def test_places_are_those_of_the_published_table(self):
        # Conover, Practical Nonparametric Statistics: binomial with p = 1/2, 95 %. Value k is k itself.
        for n, k in ((6, 1), (9, 2), (10, 2), (12, 3), (15, 4), (20, 6), (30, 10), (50, 18), (100, 40), (200, 86)):
            self.assertEqual(median_interval(first_numbers(n)), (k, n + 1 - k))

    def test_there_is_none_where_the_extremes_do_not_cover_enough(self):
        for n in range(1, 6):
            self.assertIsNone(median_interval(first_numbers(n)))

    def test_values_are_sorted_and_may_be_thousands(self):
        self.assertEqual(median_interval([6, 1, 5, 2, 4, 3]), (1, 6))
        low, high = median_interval(first_numbers(4001))  # 2⁻ⁿ alone is no number any more
        self.assertAlmostEqual(low, 2001 - 1.96 * math.sqrt(4001) / 2, delta=1)
        self.assertEqual(low + high, 4002)


class MannWhitney(unittest.TestCase):
    def test_exact_without_ties_and_below_fifty(self):
        for first, second, expected, u, p in (
            ([0.5 * i * i for i in range(49)], [7.3 * i + 0.01 for i in range(48)], True, 1495, 0.02108264199750715),
            (np.arange(60), np.arange(55) + 10.5, False, 1225, 0.017466219103968242),
            # Ties, by hand: U 6, mean 15, groups of 3 twos and 3 threes: variance 30/12 · (12 − 48/110); (9 − ½)/σ = 1.5809.
            ([1, 2, 2, 3, 4], [2, 3, 3, 5, 6, 7], False, 6, 0.11390314458853068),
        ):
            test, exact = mann_whitney(first, second)
            self.assertEqual((exact, test.statistic), (expected, u))
            self.assertAlmostEqual(test.pvalue, p, places=12)

    def test_the_least_p_is_that_of_two_orders_of_all(self):
        for n1, n2 in ((1, 1), (3, 3), (4, 7), (12, 12), (49, 49)):
            test, _ = mann_whitney(np.arange(n1), n1 + np.arange(n2))
            self.assertAlmostEqual(least_p(n1, n2) / test.pvalue, 1, places=9)


class Holm(unittest.TestCase):
    def test_the_usual_example(self):
        # Times 3, 1, 2 and 4, then never below a smaller one's.
        for p, adjusted in (([0.01, 0.04, 0.03, 0.005], [0.03, 0.06, 0.06, 0.02]), ([0.9, 0.7], [1, 1]), ([0.02], [0.02]), ([], []),
                            ([0.01, 0.01, 0.01], [0.03, 0.03, 0.03])):
            np.testing.assert_allclose(holm(p), adjusted, rtol=1e-12)


class Shapley(unittest.TestCase):
    def test_it_is_the_mean_over_all_orders_and_adds_up(self):
        draw = np.random.default_rng(5)
        for parts in range(6):
            values = draw.uniform(-1, 1, 1 << parts)
            mean = [0.0] * parts
            for order in itertools.permutations(range(parts)):
                taken = 0
                for part in order:
                    mean[part] += (values[taken | 1 << part] - values[taken]) / math.factorial(parts)
                    taken |= 1 << part
            shares = shapley(values)
            np.testing.assert_allclose([share for _, share in shares], mean, atol=1e-12)
            self.assertEqual([alone for alone, _ in shares], [values[1 << part] - values[0] for part in range(parts)])
            self.assertAlmostEqual(sum(share for _, share in shares), values[-1] - values[0], places=12)

    def test_what_only_both_move_is_divided_equally(self):
        self.assertEqual(shapley([0, 0, 0, 6]), [(0, 3), (0, 3)])


def verdicts(pairs, **rule):
    rule = Rule(**rule)
    return [one["verdict"] for one in judge([(Sample(first, rule), Sample(second, rule)) for first, second in pairs], rule)]


class Verdicts(unittest.TestCase):
    def test_small_differences_are_the_same_however_significant(self):
        before = 1 + 1e-4 * np.arange(20)
        pairs = [(before, 1.04 * before), (before, 1.06 * before), (1.06 * before, before)]
        self.assertLess(judge([(Sample(before, Rule()), Sample(1.04 * before, Rule()))], Rule())[0]["adjusted_p"], 1e-6)
        self.assertEqual(verdicts(pairs), ["same", "slower", "faster"])
        self.assertEqual(verdicts(pairs[:1], least_difference=0.03), ["slower"])
        self.assertEqual(verdicts([(before, before)], least_difference=0), ["same"])

    def test_noisy_samples_must_differ_by_more(self):
        noisy, steady = 1 + 0.02 * np.arange(12), 1 + 0.002 * np.arange(12)  # ±6 % and less than 5 %
        self.assertTrue(Sample(noisy, Rule()).noisy)
        self.assertFalse(Sample(steady, Rule()).noisy)
        # 20 % is less than 10 and the two intervals.
        self.assertEqual(verdicts([(noisy, 1.2 * noisy), (steady, 1.2 * steady)], least_difference=0.1), ["inconclusive", "slower"])
        self.assertEqual(verdicts([(noisy, 1.2 * noisy)]), ["slower"])

    def test_noisy_samples_are_never_the_same(self):
        noisy, steady = 1 + 0.02 * np.arange(12), 1 + 0.002 * np.arange(12)
        for pair in ((noisy, noisy), (steady, noisy), (noisy, steady), (noisy, 1.1 * noisy)):
            self.assertEqual(verdicts([pair]), ["inconclusive"])
        # Significant and large, but within the noise of so wide a sample.
        wild = np.concatenate([np.linspace(1, 1.1, 6), np.linspace(2, 2.2, 6)])
        (one,) = judge([(Sample(wild, Rule()), Sample(1.5 * wild, Rule()))], Rule())
        self.assertGreater(one["difference"], 0.49)
        self.assertEqual(one["verdict"], "inconclusive")

    def test_too_few_repetitions_for_so_many_comparisons(self):
        # Five against five: p is at least 2 of 252, which six comparisons can bear and seven cannot.
        clear, mixed = ([1, 2, 3, 4, 5], [6, 7, 8, 9, 10]), ([1, 3, 5, 7, 9], [2, 4, 6, 8, 10])
        self.assertEqual(verdicts([clear] + [mixed] * 5), ["slower"] + ["same"] * 5)
        self.assertEqual(verdicts([clear] + [mixed] * 6), ["too few"] * 7)
        self.assertEqual([Rule().repetitions_needed(comparisons) for comparisons in (6, 7, 1)], [5, 6, 4])

    def test_from_nothing_there_is_no_relative_difference(self):
        (one,) = judge([(Sample([0, 0, 0, 0], Rule()), Sample([1, 2, 3, 4], Rule()))], Rule())
        self.assertEqual((one["difference"], one["verdict"]), (None, "slower"))

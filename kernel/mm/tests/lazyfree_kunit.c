// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit tests for the policy in mm/lazyfree.h: where a folio is cut of which a
 * part is named.
 */
#include <kunit/test.h>

#include "../lazyfree.h"

/* What is expected of a plan, whatever the folio and the part named. */
static void check_plan(struct kunit *test, unsigned int order, unsigned int first,
		       unsigned int last)
{
	struct lazyfree_piece pieces[LAZYFREE_MAX_PIECES];
	unsigned int i, pos = 0, nr;

	nr = lazyfree_plan(order, first, last, pieces);
	KUNIT_ASSERT_LE(test, nr, LAZYFREE_MAX_PIECES);

	for (i = 0; i < nr; i++) {
		unsigned int o = pieces[i].order, up = o ? o + 1 : 2;
		unsigned int parent = ALIGN_DOWN(pieces[i].first, 1U << up);

		/* No gap, no overlap, aligned, of an order that can exist. */
		KUNIT_ASSERT_EQ(test, pieces[i].first, pos);
		KUNIT_ASSERT_TRUE(test, IS_ALIGNED(pos, 1U << o));
		KUNIT_ASSERT_NE(test, o, 1);
		KUNIT_ASSERT_LE(test, o, order);
		/* Named or not, not both. */
		KUNIT_ASSERT_FALSE(test, lazyfree_straddles(pos, o, first));
		KUNIT_ASSERT_FALSE(test, lazyfree_straddles(pos, o, last));
		/* As large as can be: what is twice the size would be both. */
		if (o < order)
			KUNIT_ASSERT_TRUE(test,
					  lazyfree_straddles(parent, up, first) ||
					  lazyfree_straddles(parent, up, last));
		pos += 1U << o;
	}
	KUNIT_ASSERT_EQ(test, pos, 1U << order);
}

static void lazyfree_plan_all_test(struct kunit *test)
{
	unsigned int order, first, last;

	for (order = 2; order <= 7; order++)
		for (first = 0; first < 1U << order; first++)
			for (last = first + 1; last <= 1U << order; last++)
				check_plan(test, order, first, last);
}

static void lazyfree_plan_pmd_test(struct kunit *test)
{
	unsigned int nr = 1U << PMD_ORDER, first, last;

	/* Each page as a start, with ends near and far; and as an end. */
	for (first = 0; first < nr; first++) {
		for (last = first + 1; last <= min(first + 9, nr); last++)
			check_plan(test, PMD_ORDER, first, last);
		for (last = first + 10; last <= nr; last += 61)
			check_plan(test, PMD_ORDER, first, last);
		check_plan(test, PMD_ORDER, first, nr);
		check_plan(test, PMD_ORDER, 0, first + 1);
	}
}

/* Halving buddies down to lazyfree_cut_order() leaves just what is planned. */
static void lazyfree_cut_order_test(struct kunit *test)
{
	const unsigned int order = 7, nr = 1U << order;
	unsigned int first, last, i, k;
	u8 *orders;

	orders = kunit_kzalloc(test, nr, GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, orders);

	for (first = 0; first < nr; first++) {
		for (last = first + 1; last <= nr; last++) {
			struct lazyfree_piece pieces[LAZYFREE_MAX_PIECES];
			const unsigned int ends[] = { first, last };
			unsigned int planned;

			/* orders[page]: order of the folio that holds it. */
			memset(orders, order, nr);
			for (k = 0; k < ARRAY_SIZE(ends); k++) {
				unsigned int idx = ends[k], o, head;

				if (!idx || idx == nr)
					continue;
				if (IS_ALIGNED(idx, 1U << orders[idx]))
					continue;
				/* As __split_unmapped_folio() does it. */
				for (o = orders[idx]; o-- > lazyfree_cut_order(idx);) {
					if (o == 1)
						continue;
					head = ALIGN_DOWN(idx, 1U << orders[idx]);
					memset(orders + head, o, 1U << orders[idx]);
				}
			}

			planned = lazyfree_plan(order, first, last, pieces);
			for (i = 0, k = 0; i < nr; i += 1U << orders[i], k++) {
				KUNIT_ASSERT_LT(test, k, planned);
				KUNIT_ASSERT_EQ(test, pieces[k].first, i);
				KUNIT_ASSERT_EQ(test, pieces[k].order, orders[i]);
			}
			KUNIT_ASSERT_EQ(test, k, planned);
		}
	}
}

static void lazyfree_plan_examples_test(struct kunit *test)
{
	static const struct lazyfree_piece middle[] = {
		{ 0, 3 }, { 8, 2 }, { 12, 0 }, { 13, 0 }, { 14, 0 }, { 15, 0 },
		{ 16, 4 },
	};
	static const struct lazyfree_piece front[] = {
		{ 0, 2 }, { 4, 2 }, { 8, 3 },
	};
	static const struct lazyfree_piece back[] = {
		{ 0, 2 }, { 4, 0 }, { 5, 0 }, { 6, 0 }, { 7, 0 },
	};
	struct lazyfree_piece pieces[LAZYFREE_MAX_PIECES];

	/* 8 KiB that end in the middle of 128 KiB. */
	KUNIT_ASSERT_EQ(test, lazyfree_plan(5, 14, 16, pieces), ARRAY_SIZE(middle));
	KUNIT_EXPECT_MEMEQ(test, pieces, middle, sizeof(middle));
	/* The first quarter of 64 KiB. */
	KUNIT_ASSERT_EQ(test, lazyfree_plan(4, 0, 4, pieces), ARRAY_SIZE(front));
	KUNIT_EXPECT_MEMEQ(test, pieces, front, sizeof(front));
	/* The last page of 32 KiB. */
	KUNIT_ASSERT_EQ(test, lazyfree_plan(3, 7, 8, pieces), ARRAY_SIZE(back));
	KUNIT_EXPECT_MEMEQ(test, pieces, back, sizeof(back));
	/* All of it: nothing to do. */
	KUNIT_ASSERT_EQ(test, lazyfree_plan(4, 0, 16, pieces), 1);
}

static struct kunit_case lazyfree_test_cases[] = {
	KUNIT_CASE(lazyfree_plan_examples_test),
	KUNIT_CASE(lazyfree_plan_all_test),
	KUNIT_CASE_SLOW(lazyfree_plan_pmd_test),
	KUNIT_CASE(lazyfree_cut_order_test),
	{}
};

static struct kunit_suite lazyfree_test_suite = {
	.name = "lazyfree",
	.test_cases = lazyfree_test_cases,
};

kunit_test_suite(lazyfree_test_suite);

MODULE_DESCRIPTION("KUnit tests for where MADV_FREE cuts folios");
MODULE_LICENSE("GPL");

// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit tests of the window policy of write faults that reuse a large folio.
 *
 * Beside single answers, writers are played against the policy on a model of
 * a page table: an array that says which PTEs are writable.
 */
#include <kunit/test.h>
#include <linux/bitmap.h>
#include <linux/prandom.h>

#include "../wp_reuse.h"

#define NR	512u

/* A page table of one folio, all read-only but what faults made writable. */
struct model {
	DECLARE_BITMAP(writable, NR);
	unsigned int faults;
	unsigned int most;	/* the largest window */
};

static unsigned int run_length(struct model *m, int pos, int dir)
{
	unsigned int run = 0;

	for (pos += dir; pos >= 0 && pos < NR && test_bit(pos, m->writable); pos += dir)
		run++;
	return run;
}

static void model_write(struct kunit *test, struct model *m, unsigned int pos)
{
	struct wp_reuse_view view = { .lo = 0, .hi = NR, .pos = pos };
	struct wp_reuse_window w;

	if (test_bit(pos, m->writable))
		return;

	view.again = test_bit(0, m->writable);
	view.below = run_length(m, pos, -1);
	view.above = view.below ? 0 : run_length(m, pos, 1);
	w = wp_reuse_adaptive(&view);

	KUNIT_ASSERT_LE(test, w.first, pos);
	KUNIT_ASSERT_GT(test, w.first + w.nr, pos);
	KUNIT_ASSERT_LE(test, w.first + w.nr, NR);
	bitmap_set(m->writable, w.first, w.nr);
	set_bit(0, m->writable);
	m->faults++;
	m->most = max(m->most, w.nr);
}

/* The first write to a folio takes its own PTE and nothing else. */
static void wp_reuse_lone_write(struct kunit *test)
{
	unsigned int pos;

	for (pos = 0; pos < NR; pos++) {
		struct wp_reuse_view view = { .hi = NR, .pos = pos };
		struct wp_reuse_window w = wp_reuse_adaptive(&view);

		KUNIT_EXPECT_EQ(test, w.first, pos);
		KUNIT_EXPECT_EQ(test, w.nr, 1);
	}
}

/* Whatever is seen, the window holds the faulting PTE and stays in bounds. */
static void wp_reuse_in_bounds(struct kunit *test)
{
	struct rnd_state rnd;
	int i;

	prandom_seed_state(&rnd, 1);
	for (i = 0; i < 100000; i++) {
		struct wp_reuse_view view;
		struct wp_reuse_window w;

		view.lo = prandom_u32_state(&rnd) % NR;
		view.hi = view.lo + 1 + prandom_u32_state(&rnd) % (NR - view.lo);
		view.pos = view.lo + prandom_u32_state(&rnd) % (view.hi - view.lo);
		view.below = prandom_u32_state(&rnd) % (NR + 1);
		view.above = prandom_u32_state(&rnd) % (NR + 1);
		view.again = prandom_u32_state(&rnd) % 2;
		w = wp_reuse_adaptive(&view);

		KUNIT_ASSERT_GE(test, w.first, view.lo);
		KUNIT_ASSERT_LE(test, w.first, view.pos);
		KUNIT_ASSERT_GT(test, w.first + w.nr, view.pos);
		KUNIT_ASSERT_LE(test, w.first + w.nr, view.hi);
		KUNIT_ASSERT_LE(test, w.nr, WP_REUSE_MOST);
	}
}

/* A run below or above doubles, up to the most; a short one changes nothing. */
static void wp_reuse_runs(struct kunit *test)
{
	struct wp_reuse_view view = { .hi = NR, .pos = 200 };
	struct wp_reuse_window w;

	view.below = 32;
	w = wp_reuse_adaptive(&view);
	KUNIT_EXPECT_EQ(test, w.first, 200);
	KUNIT_EXPECT_EQ(test, w.nr, 64);

	view.below = 0;
	view.above = 32;
	w = wp_reuse_adaptive(&view);
	KUNIT_EXPECT_EQ(test, w.first + w.nr, 201);
	KUNIT_EXPECT_EQ(test, w.nr, 64);

	view.above = 0;
	view.below = NR;
	w = wp_reuse_adaptive(&view);
	KUNIT_EXPECT_EQ(test, w.nr, WP_REUSE_MOST);

	view.below = 1;
	view.again = true;
	w = wp_reuse_adaptive(&view);
	KUNIT_EXPECT_EQ(test, w.first, ALIGN_DOWN(200, WP_REUSE_AGAIN));
	KUNIT_EXPECT_EQ(test, w.nr, WP_REUSE_AGAIN);
}

/* Sequential writers, either way, take a handful of faults for a folio. */
static void wp_reuse_sequential(struct kunit *test)
{
	struct model *up = kunit_kzalloc(test, sizeof(*up), GFP_KERNEL);
	struct model *down = kunit_kzalloc(test, sizeof(*down), GFP_KERNEL);
	unsigned int i;

	KUNIT_ASSERT_NOT_NULL(test, up);
	KUNIT_ASSERT_NOT_NULL(test, down);
	for (i = 0; i < NR; i++) {
		model_write(test, up, i);
		model_write(test, down, NR - 1 - i);
	}
	KUNIT_EXPECT_LE(test, up->faults, 6);
	KUNIT_EXPECT_LE(test, down->faults, 8);
	KUNIT_EXPECT_LE(test, up->most, WP_REUSE_MOST);
}

/* Random writers never take more faults than one a block and the first. */
static void wp_reuse_random(struct kunit *test)
{
	struct rnd_state rnd;
	int round, i;

	prandom_seed_state(&rnd, 2);
	for (round = 0; round < 100; round++) {
		struct model m = {};

		for (i = 0; i < 4 * NR; i++)
			model_write(test, &m, prandom_u32_state(&rnd) % NR);
		KUNIT_EXPECT_LE(test, m.faults, 1 + NR / WP_REUSE_AGAIN);
	}
}

/*
 * However the pages to write are chosen, n faults on a folio make at most
 * n blocks writable, and twice that where windows grow along a run.
 */
static void wp_reuse_waste_is_bounded(struct kunit *test)
{
	struct rnd_state rnd;
	int round, i;

	prandom_seed_state(&rnd, 3);
	for (round = 0; round < 1000; round++) {
		struct model m = {};
		const unsigned int stride = 1 + prandom_u32_state(&rnd) % NR;
		const unsigned int start = prandom_u32_state(&rnd) % NR;

		for (i = 0; i < 8; i++) {
			model_write(test, &m, (start + i * stride) % NR);
			KUNIT_EXPECT_LE(test, bitmap_weight(m.writable, NR),
					2 * WP_REUSE_AGAIN * m.faults);
		}
	}
}

static struct kunit_case wp_reuse_cases[] = {
	KUNIT_CASE(wp_reuse_lone_write),
	KUNIT_CASE(wp_reuse_in_bounds),
	KUNIT_CASE(wp_reuse_runs),
	KUNIT_CASE(wp_reuse_sequential),
	KUNIT_CASE(wp_reuse_random),
	KUNIT_CASE(wp_reuse_waste_is_bounded),
	{}
};

static struct kunit_suite wp_reuse_suite = {
	.name = "wp_reuse",
	.test_cases = wp_reuse_cases,
};

kunit_test_suite(wp_reuse_suite);

MODULE_DESCRIPTION("Tests of the window policy of reused large folios");
MODULE_LICENSE("GPL");

// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit tests of the policy of write faults that copy a shared large folio:
 * what each rule permits on a given page table. Whole patterns and adversaries
 * are played against the same functions in user space.
 */
#include <kunit/test.h>
#include <linux/mm.h>

#include "../internal.h"
#include "../wp_copy.h"

/* A page table seen as letters: s shared, u unwritten, w written. */
struct view {
	const char *pages;
	unsigned long first;
};

static enum wp_copy_state state_of(const void *ctx, unsigned long page)
{
	const struct view *view = ctx;
	unsigned long i = page - view->first;

	if (i >= strlen(view->pages))
		return WP_COPY_OTHER;
	switch (view->pages[i]) {
	case 'w':
		return WP_COPY_WRITTEN;
	case 'u':
		return WP_COPY_UNWRITTEN;
	default:
		return WP_COPY_OTHER;
	}
}

#define ORDERS_16K_64K	(BIT(2) | BIT(3) | BIT(4))

static unsigned long runs(const char *pages, unsigned long page,
			  unsigned long orders)
{
	const struct view view = { .pages = pages, .first = 0 };

	return wp_copy_runs(orders, page, state_of, &view);
}

static void test_run_nothing_written(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, runs("ssssssssssssssss", 0, ORDERS_16K_64K), 0);
	KUNIT_EXPECT_EQ(test, runs("ssssssssssssssss", 9, ORDERS_16K_64K), 0);
	/* At the very first page of all there is nothing below. */
	KUNIT_EXPECT_EQ(test, runs("", 0, ORDERS_16K_64K), 0);
}

static void test_run_forward(struct kunit *test)
{
	/* Eight pages are written: twice as many as the smallest block has. */
	KUNIT_EXPECT_EQ(test, runs("wwwwwwwwssssssss", 8, ORDERS_16K_64K), BIT(2));
	/* One less will not do, wherever it is missing. */
	KUNIT_EXPECT_EQ(test, runs("swwwwwwwssssssss", 8, ORDERS_16K_64K), 0);
	KUNIT_EXPECT_EQ(test, runs("wwwwwwwsssssssss", 8, ORDERS_16K_64K), 0);
	/* A page that was copied along, but not written, ends the run. */
	KUNIT_EXPECT_EQ(test, runs("wwwwwwwussssssss", 8, ORDERS_16K_64K), 0);
	/* 16 permit 8, 32 permit 16. */
	KUNIT_EXPECT_EQ(test, runs("wwwwwwwwwwwwwwwwssssssss", 16, ORDERS_16K_64K),
			BIT(2) | BIT(3));
	KUNIT_EXPECT_EQ(test, runs("wwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwssss", 32,
				   ORDERS_16K_64K), ORDERS_16K_64K);
	/* Only sizes that are possible. */
	KUNIT_EXPECT_EQ(test, runs("wwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwssss", 32,
				   BIT(3)), BIT(3));
	KUNIT_EXPECT_EQ(test, runs("wwwwwwwwssssssss", 8, BIT(4)), 0);
}

static void test_run_backward(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, runs("sssswwwwwwww", 3, ORDERS_16K_64K), BIT(2));
	KUNIT_EXPECT_EQ(test, runs("sssswwwwwwws", 3, ORDERS_16K_64K), 0);
	KUNIT_EXPECT_EQ(test, runs("ssssswwwwwww", 3, ORDERS_16K_64K), 0);
}

static void test_run_not_at_the_edge(struct kunit *test)
{
	/* The run counts from the block, not from the page. */
	KUNIT_EXPECT_EQ(test, runs("wwwwwwwwssssssss", 11, ORDERS_16K_64K), BIT(2));
	KUNIT_EXPECT_EQ(test, runs("wwwwwwwwssssssss", 12, ORDERS_16K_64K), 0);
}

static void test_dense_half(struct kunit *test)
{
	const u64 half = 0x5555555555555555ULL;

	/* 32 written: enough; 31: not. What the block still shares is 8 pages. */
	KUNIT_EXPECT_TRUE(test, wp_copy_dense(half, 0, 1, WP_COPY_FILL_ORDER));
	KUNIT_EXPECT_FALSE(test, wp_copy_dense(half & ~BIT_ULL(62), 0, 1,
					       WP_COPY_FILL_ORDER));
}

static void test_dense_waste(struct kunit *test)
{
	const u64 low = GENMASK_ULL(31, 0);

	/* 4 pages, 3 of them beyond the faulting one, and u unwritten: */
	KUNIT_EXPECT_TRUE(test, wp_copy_dense(low, 0, 60, 2));
	KUNIT_EXPECT_TRUE(test, wp_copy_dense(low, GENMASK_ULL(44, 32), 60, 2));
	KUNIT_EXPECT_FALSE(test, wp_copy_dense(low, GENMASK_ULL(45, 32), 60, 2));
	/* A page is not counted twice. */
	KUNIT_EXPECT_TRUE(test, wp_copy_dense(low, GENMASK_ULL(44, 32), 44, 2));
	KUNIT_EXPECT_TRUE(test, wp_copy_dense(low, GENMASK_ULL(46, 32), 47, 2));
	KUNIT_EXPECT_FALSE(test, wp_copy_dense(low, GENMASK_ULL(48, 32), 51, 2));
}

static void test_dense_fill(struct kunit *test)
{
	const u64 low = GENMASK_ULL(31, 0);

	/* At most half of a block of 16 pages is filled up. */
	KUNIT_EXPECT_TRUE(test, wp_copy_dense(low | GENMASK_ULL(55, 48), 0, 60, 4));
	KUNIT_EXPECT_FALSE(test, wp_copy_dense(low | GENMASK_ULL(54, 48), 0, 60, 4));
	KUNIT_EXPECT_FALSE(test, wp_copy_dense(low, 0, 60, 4));
}

static void test_dense_address(struct kunit *test)
{
	const u64 low = GENMASK_ULL(31, 0);

	/* Only the place within the window matters. */
	KUNIT_EXPECT_TRUE(test, wp_copy_dense(low, 0, 64 * 12345 + 48, 2));
	KUNIT_EXPECT_TRUE(test, wp_copy_dense(~BIT_ULL(63), 0, ULONG_MAX, 4));
}

static void test_crowded(struct kunit *test)
{
	/* Shared by two: 32 mappings of 16 pages. */
	KUNIT_EXPECT_FALSE(test, wp_copy_crowded(32, 16));
	KUNIT_EXPECT_FALSE(test, wp_copy_crowded(25, 16));
	KUNIT_EXPECT_TRUE(test, wp_copy_crowded(24, 16));
	KUNIT_EXPECT_TRUE(test, wp_copy_crowded(17, 16));
	/* By five. */
	KUNIT_EXPECT_FALSE(test, wp_copy_crowded(5 * 512 - 255, 512));
	KUNIT_EXPECT_TRUE(test, wp_copy_crowded(5 * 512 - 256, 512));
	/* Too small to tell. */
	KUNIT_EXPECT_FALSE(test, wp_copy_crowded(5, 4));
}

static struct kunit_case wp_copy_test_cases[] = {
	KUNIT_CASE(test_run_nothing_written),
	KUNIT_CASE(test_run_forward),
	KUNIT_CASE(test_run_backward),
	KUNIT_CASE(test_run_not_at_the_edge),
	KUNIT_CASE(test_dense_half),
	KUNIT_CASE(test_dense_waste),
	KUNIT_CASE(test_dense_fill),
	KUNIT_CASE(test_dense_address),
	KUNIT_CASE(test_crowded),
	{}
};

static struct kunit_suite wp_copy_test_suite = {
	.name = "wp_copy",
	.test_cases = wp_copy_test_cases,
};

kunit_test_suite(wp_copy_test_suite);

MODULE_DESCRIPTION("KUnit tests of the policy of large copy-on-write");
MODULE_LICENSE("GPL");

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

#define ORDERS_16K_64K	(BIT(2) | BIT(3) | BIT(4))

/* A run just below the block of the faulting page, or just above it. */
static unsigned long below(unsigned long orders, unsigned long page,
			   unsigned long run)
{
	return wp_copy_runs(orders, page, run);
}

static unsigned long above(unsigned long orders, unsigned long page,
			   unsigned long run)
{
	return wp_copy_runs(orders, ~page, run);
}

static void test_run_nothing_written(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, below(ORDERS_16K_64K, 0, 0), 0);
	KUNIT_EXPECT_EQ(test, above(ORDERS_16K_64K, 9, 0), 0);
	KUNIT_EXPECT_EQ(test, above(ORDERS_16K_64K, ULONG_MAX, 0), 0);
}

static void test_run_length(struct kunit *test)
{
	/* Eight pages are written: twice as many as the smallest block has. */
	KUNIT_EXPECT_EQ(test, below(ORDERS_16K_64K, 16, 8), BIT(2));
	KUNIT_EXPECT_EQ(test, below(ORDERS_16K_64K, 16, 7), 0);
	/* 16 permit 8, 32 permit 16. */
	KUNIT_EXPECT_EQ(test, below(ORDERS_16K_64K, 16, 15), BIT(2));
	KUNIT_EXPECT_EQ(test, below(ORDERS_16K_64K, 16, 16), BIT(2) | BIT(3));
	KUNIT_EXPECT_EQ(test, below(ORDERS_16K_64K, 16, 32), ORDERS_16K_64K);
	KUNIT_EXPECT_EQ(test, above(ORDERS_16K_64K, 31, 32), ORDERS_16K_64K);
	/* Only sizes that are possible. */
	KUNIT_EXPECT_EQ(test, below(BIT(3), 16, 32), BIT(3));
	KUNIT_EXPECT_EQ(test, below(BIT(4), 16, 31), 0);
	KUNIT_EXPECT_EQ(test, below(BIT(2) | BIT(4), 16, 31), BIT(2));
}

static void test_run_reaches_block(struct kunit *test)
{
	/* Anywhere in the smallest block. */
	KUNIT_EXPECT_EQ(test, below(ORDERS_16K_64K, 19, 32), ORDERS_16K_64K);
	KUNIT_EXPECT_EQ(test, above(ORDERS_16K_64K, 28, 32), ORDERS_16K_64K);
	/* A larger one that starts before it has no run below. */
	KUNIT_EXPECT_EQ(test, below(ORDERS_16K_64K, 20, 32), BIT(2));
	KUNIT_EXPECT_EQ(test, below(ORDERS_16K_64K, 24, 32), BIT(2) | BIT(3));
	/* Nor above, if it ends behind it. */
	KUNIT_EXPECT_EQ(test, above(ORDERS_16K_64K, 27, 32), BIT(2));
	KUNIT_EXPECT_EQ(test, above(ORDERS_16K_64K, 23, 32), BIT(2) | BIT(3));
}

static void test_dense_share(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, wp_copy_dense_nr(WP_COPY_DENSE_PERCENT), 45);
	KUNIT_EXPECT_EQ(test, wp_copy_dense_nr(50), 32);
	KUNIT_EXPECT_EQ(test, wp_copy_dense_nr(100), 64);
	/* As many as asked for are written: enough; one page less: not. */
	KUNIT_EXPECT_EQ(test, wp_copy_dense(39, 0, 39), 19);
	KUNIT_EXPECT_EQ(test, wp_copy_dense(38, 0, 39), 0);
	KUNIT_EXPECT_EQ(test, wp_copy_dense(63, 0, 64), 0);
}

static void test_dense_waste(struct kunit *test)
{
	/* What is unwritten already and what may be added: half of the written. */
	KUNIT_EXPECT_EQ(test, wp_copy_dense(40, 13, 32), 7);
	KUNIT_EXPECT_EQ(test, wp_copy_dense(40, 19, 32), 1);
	KUNIT_EXPECT_EQ(test, wp_copy_dense(40, 20, 32), 0);
	KUNIT_EXPECT_EQ(test, wp_copy_dense(40, 24, 32), 0);
	KUNIT_EXPECT_EQ(test, wp_copy_dense(63, 1, 32), 30);
}

static void test_crowded(struct kunit *test)
{
	/* Shared by two: 32 mappings of 16 pages. Ten of them are three fifths. */
	KUNIT_EXPECT_FALSE(test, wp_copy_crowded(32, 16, 39));
	KUNIT_EXPECT_FALSE(test, wp_copy_crowded(23, 16, 39));
	KUNIT_EXPECT_TRUE(test, wp_copy_crowded(22, 16, 39));
	KUNIT_EXPECT_TRUE(test, wp_copy_crowded(17, 16, 39));
	/* By five. */
	KUNIT_EXPECT_FALSE(test, wp_copy_crowded(5 * 512 - 311, 512, 39));
	KUNIT_EXPECT_TRUE(test, wp_copy_crowded(5 * 512 - 312, 512, 39));
	/* Half. */
	KUNIT_EXPECT_FALSE(test, wp_copy_crowded(25, 16, 32));
	KUNIT_EXPECT_TRUE(test, wp_copy_crowded(24, 16, 32));
	/* Too small to tell. */
	KUNIT_EXPECT_FALSE(test, wp_copy_crowded(5, 4, 32));
}

static struct kunit_case wp_copy_test_cases[] = {
	KUNIT_CASE(test_run_nothing_written),
	KUNIT_CASE(test_run_length),
	KUNIT_CASE(test_run_reaches_block),
	KUNIT_CASE(test_dense_share),
	KUNIT_CASE(test_dense_waste),
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

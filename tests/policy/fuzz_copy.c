// SPDX-License-Identifier: GPL-2.0
/*
 * Path 2: any sequence of stores, with any set of orders, against wp_copy.h and
 * the model of play.c. What is copied and never written stays within the bound
 * after every single store, and each rule agrees with a plain reading of it.
 */
#define main play_main
#include "play.c"
#undef main

static bool all_written(unsigned long first, unsigned long nr)
{
	for (unsigned long i = first; i < first + nr; i++)
		if (i >= a.pages || a.state[i] != WRITTEN)
			return false;
	return true;
}

/* What the run rule permits: from the smallest order on, and for a reason. */
static void check_runs(unsigned long page)
{
	const unsigned long permitted = runs(page);
	bool gap = false;

	MUST(!(permitted & ~a.orders));
	for (unsigned int order = 1; order < 10; order++) {
		const unsigned long nr = 1UL << order, first = page & -nr;
		bool may;

		if (!(a.orders & nr))
			continue;
		may = (first >= 2 * nr && all_written(first - 2 * nr, 2 * nr)) ||
		      all_written(first + nr, 2 * nr);
		MUST(!(permitted & nr) || may);
		MUST(!(permitted & nr) || !gap);
		gap |= !(permitted & nr);
	}
}

static void check_dense(struct input *in)
{
	const unsigned int written = take(in, WP_COPY_WINDOW + 1);
	const unsigned int unwritten = take(in, WP_COPY_WINDOW + 1 - written);
	const unsigned int dense = wp_copy_dense_nr(50 + take(in, 51));
	const unsigned int extra = wp_copy_dense(written, unwritten, dense);

	MUST(!extra || written >= dense);
	MUST(!extra || unwritten + extra <= written / 2);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };
	static const unsigned long sets[] = { 1 << 2, 1 << 2 | 1 << 3, 1 << 2 | 1 << 3 | 1 << 4, 1 << 4 };
	unsigned long pages = 64 << take(&in, 4), at = 0;

	check_dense(&in);
	reset(pages, sets[take(&in, 4)]);
	a.dense = wp_copy_dense_nr(50 + take(&in, 51));
	while (in.size) {
		/* Jump, or walk on: a run of up to 32 pages up or down. */
		const unsigned int what = take(&in, 4);
		unsigned int steps = 1;

		if (what < 2)
			at = take(&in, pages);
		else
			steps = 1 + take(&in, 32);
		while (steps--) {
			check_runs(at);
			store(at);
			MUST(copied() <= pages);
			MUST(2 * (copied() - a.written) <= 3 * a.written);
			at = (what == 3 ? at + pages - 1 : at + 1) % pages;
		}
	}
	return 0;
}

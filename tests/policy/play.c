// SPDX-License-Identifier: GPL-2.0
/*
 * Plays write patterns, and adversaries, against the policy of path 2 (which
 * order a write fault on a shared large folio copies), in user space.
 *
 * The policy is the kernel's own header. The model around it is one array of
 * pages in large folios of which a child still shares everything: a page is
 * shared, or copied and not written, or written.
 */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t u64;
#include "wp_copy.h"

/*
 * Instructions of the fault path, the copying itself apart, as measured on
 * x86-64 under icount (see docs/path2-copy.md).
 */
static const double cost_single = 2990;	/* a fault that copies one page */
static const double cost_large = 260;	/* each further page, large folio */
static const double cost_fill = 1360;	/* each further page, of its own folio */
static const double cost_hint = 55;	/* the policy, when it says no at once */
static const double cost_window = 1000;	/* and when it reads the window */

enum { MAX_PAGES = 16384 };

enum { FOLIO = 16 };			/* pages of an old folio */

enum state { SHARED, UNWRITTEN, WRITTEN };

struct arena {
	unsigned long pages;
	unsigned char state[MAX_PAGES];	/* enum state */
	unsigned long orders;		/* that may be copied to */
	unsigned int dense;		/* pages of a window that must be written */
	unsigned long written, faults, large, filled, windows;
};

static struct arena a;

static unsigned int percent = WP_COPY_DENSE_PERCENT;

static void reset(unsigned long pages, unsigned long orders)
{
	memset(&a, 0, sizeof(a));
	a.pages = pages;
	a.orders = orders;
	a.dense = wp_copy_dense_nr(percent);
}

static unsigned long copied(void)
{
	return a.faults + a.large + a.filled;
}

static double cost(void)
{
	return a.faults * (cost_single + cost_hint) + a.large * cost_large +
	       a.filled * cost_fill + a.windows * cost_window;
}

static bool all_shared(unsigned long first, unsigned long nr)
{
	unsigned long i;

	/* A block is within one folio. */
	if (first + nr > a.pages || nr > FOLIO)
		return false;
	for (i = first; i < first + nr; i++)
		if (a.state[i] != SHARED)
			return false;
	return true;
}

/* Copy a block that is all shared. */
static void copy_block(unsigned long first, unsigned long nr)
{
	memset(a.state + first, UNWRITTEN, nr);
	a.large += nr - 1;	/* the faulting page is not an extra one */
}

/* Copy up to @max pages that are shared, from @page on, at last from its block's first. */
static void fill(unsigned long page, unsigned long max)
{
	const unsigned long nr = 1UL << WP_COPY_FILL_ORDER;
	unsigned long i, at, done = 0;

	for (i = 0; i < nr && done < max; i++) {
		at = (page & -nr) + ((page + i) & (nr - 1));
		if (at < a.pages && a.state[at] == SHARED) {
			a.state[at] = UNWRITTEN;
			done++;
		}
	}
	a.filled += done - 1;
}

/* How many pages in a row are written, from @page on in steps of @step? */
static unsigned long run(unsigned long page, int step)
{
	unsigned long n = 0;

	while (page < a.pages && a.state[page] == WRITTEN) {
		page += step;
		n++;
	}
	return n;
}

/* How many of the @nr pages from @first on are in @state? */
static unsigned int count(unsigned long first, unsigned long nr, enum state state)
{
	unsigned int n = 0;
	unsigned long i;

	for (i = first; i < first + nr && i < a.pages; i++)
		n += a.state[i] == state;
	return n;
}

/* What the run rule permits at @page, on whichever side the run is. */
static unsigned long runs(unsigned long page)
{
	const unsigned long nr = a.orders & -a.orders, first = page & -nr;

	return wp_copy_runs(a.orders, page, run(first - 1, -1)) ?:
	       wp_copy_runs(a.orders, ~page, run(first + nr, 1));
}

/* What the mechanism does with a store to @page; see mm/wp_copy.c. */
static void store(unsigned long page)
{
	const unsigned long permitted = runs(page);
	unsigned long first, nr, extra;

	if (a.state[page] != SHARED) {
		a.written += a.state[page] == UNWRITTEN;
		a.state[page] = WRITTEN;
		return;
	}
	a.faults++;
	a.written++;

	/* The largest block that is whole. */
	for (nr = 1UL << 9; nr > 1; nr >>= 1)
		if ((permitted & nr) && all_shared(page & -nr, nr)) {
			copy_block(page & -nr, nr);
			goto out;
		}

	first = page & -(unsigned long)FOLIO;
	if (wp_copy_crowded(FOLIO + count(first, FOLIO, SHARED), FOLIO,
			    a.dense)) {
		first = page & -(unsigned long)WP_COPY_WINDOW;
		a.windows++;
		extra = wp_copy_dense(count(first, WP_COPY_WINDOW, WRITTEN),
				      count(first, WP_COPY_WINDOW, UNWRITTEN),
				      a.dense);
		nr = a.orders & -a.orders;
		if (extra >= nr - 1 && all_shared(page & -nr, nr))
			copy_block(page & -nr, nr);
		else if (extra)
			fill(page, extra < WP_COPY_FILL_MAX ? extra + 1 : WP_COPY_FILL_MAX);
	}
out:
	a.state[page] = WRITTEN;
}

static u64 rng_state = 0x9e3779b97f4a7c15ULL;

static u64 rng(void)
{
	rng_state ^= rng_state >> 12;
	rng_state ^= rng_state << 25;
	rng_state ^= rng_state >> 27;
	return rng_state * 2685821657736338717ULL;
}

static unsigned int perm[MAX_PAGES];

static void shuffle(unsigned long n)
{
	unsigned long i, j;
	unsigned int t;

	for (i = 0; i < n; i++)
		perm[i] = i;
	for (i = n; i > 1; i--) {
		j = rng() % i;
		t = perm[i - 1];
		perm[i - 1] = perm[j];
		perm[j] = t;
	}
}

static void p_random(unsigned long n, unsigned int percent)
{
	unsigned long i;

	shuffle(n);
	for (i = 0; i < n * percent / 100; i++)
		store(perm[i]);
}

static void p_zipf(unsigned long n, unsigned int arg)
{
	static double cum[MAX_PAGES];
	double sum = 0, u;
	unsigned long i, lo, hi, mid;

	(void)arg;
	shuffle(n);
	for (i = 0; i < n; i++)
		cum[i] = sum += 1.0 / (i + 1);
	for (i = 0; i < n; i++) {
		u = (rng() >> 11) * (1.0 / 9007199254740992.0) * sum;
		for (lo = 0, hi = n - 1; lo < hi;) {
			mid = (lo + hi) / 2;
			if (cum[mid] < u)
				lo = mid + 1;
			else
				hi = mid;
		}
		store(perm[lo]);
	}
}

static void p_forward(unsigned long n, unsigned int step)
{
	unsigned long i;

	for (i = 0; i < n; i += step)
		store(i);
}

static void p_backward(unsigned long n, unsigned int step)
{
	unsigned long i;

	for (i = n; i >= step; i -= step)
		store(i - 1);
}

/* Passes of a stride: in the end every page is written. */
static void p_passes(unsigned long n, unsigned int step)
{
	unsigned long i, j;

	for (j = 0; j < step; j++)
		for (i = j; i < n; i += step)
			store(i);
}

static void p_all_but(unsigned long n, unsigned int every)
{
	unsigned long i;

	for (i = 0; i < n; i++)
		if (i % every != every - 1)
			store(i);
}

/* Objects of @len pages at random places, an eighth of the memory in all. */
static void p_objects(unsigned long n, unsigned int len)
{
	unsigned long k, i, at;

	for (k = 0; k < n / 8 / len; k++) {
		at = rng() % (n - len);
		for (i = 0; i < len; i++)
			store(at + i);
	}
}

static const struct pattern {
	const char *name;
	void (*play)(unsigned long n, unsigned int arg);
	unsigned int arg;
	/* The most that it may cost and copy, 1 being what single pages do. */
	double max_cost, max_copied;
} patterns[] = {
	{ "sequential", p_forward, 1, 0.20, 1.0 },
	{ "backward", p_backward, 1, 0.20, 1.0 },
	{ "random, all", p_random, 100, 0.96, 1.0 },
	{ "random, 85 %", p_random, 85, 1.07, 1.10 },
	{ "random, 60 %", p_random, 60, 1.03, 1.01 },
	{ "random, 50 %", p_random, 50, 1.03, 1.01 },
	{ "random, 30 %", p_random, 30, 1.03, 1.01 },
	{ "random, 20 %", p_random, 20, 1.03, 1.01 },
	{ "random, 10 %", p_random, 10, 1.03, 1.01 },
	{ "zipf, scattered", p_zipf, 0, 1.03, 1.01 },
	{ "every 2nd page", p_forward, 2, 1.03, 1.1 },
	{ "every 3rd page", p_forward, 3, 1.03, 1.0 },
	{ "every 16th page", p_forward, 16, 1.03, 1.0 },
	{ "every 512th page", p_forward, 512, 1.03, 1.0 },
	{ "every 2nd, then the rest", p_passes, 2, 1.0, 1.0 },
	{ "every 8th, then the rest", p_passes, 8, 0.95, 1.0 },
	{ "all but every 4th", p_all_but, 4, 1.03, 1.0 },
	{ "objects of 2 pages", p_objects, 2, 1.03, 1.0 },
	{ "objects of 8 pages", p_objects, 8, 1.03, 1.05 },
	{ "objects of 16 pages", p_objects, 16, 0.9, 1.15 },
	{ "objects of 64 pages", p_objects, 64, 0.6, 1.15 },
};

static unsigned int failed;

static void check(bool ok, const char *what)
{
	if (!ok) {
		printf("# FAILED: %s\n", what);
		failed++;
	}
}

static const unsigned long usual = 1 << 2 | 1 << 3 | 1 << 4;

/*
 * Pages copied and never written, for each page written: the bound that
 * wp_copy.h argues for.
 */
static double waste(void)
{
	return (double)(copied() - a.written) / a.written;
}

/*
 * Adversaries. Each step considers a number of pages to write and takes the one
 * after which most has been copied in vain for what has been written; or it
 * builds what a rule wants to see and then turns away.
 */
static double greedy(unsigned long pages, unsigned long orders, unsigned int tries,
		     u64 seed)
{
	static struct arena best, save;
	double most, worst = 0;
	unsigned long step;
	unsigned int i;

	rng_state = seed;
	reset(pages, orders);
	for (step = 0; step < 2 * pages; step++) {
		save = a;
		most = -1;
		for (i = 0; i < tries; i++) {
			unsigned long at = rng() % pages;

			/* Mostly next to what is written already. */
			if (i % 4) {
				while (at + 1 < pages && a.state[at] != WRITTEN &&
				       rng() % 16)
					at++;
				if (at + 1 < pages)
					at++;
			}
			store(at);
			if (waste() > most) {
				most = waste();
				best = a;
			}
			a = save;
		}
		a = best;
		if (waste() > worst)
			worst = waste();
	}
	return worst;
}

/* Runs of @len, and a store each just below and just above. */
static double baits(unsigned long pages, unsigned long orders, unsigned long len,
		    unsigned long gap)
{
	unsigned long at, i;
	double worst = 0;

	reset(pages, orders);
	for (at = gap; at + len + gap < pages; at += len + gap) {
		for (i = 0; i < len; i++)
			store(at + i);
		store(at - 1);
		store(at + len);
		if (waste() > worst)
			worst = waste();
	}
	return worst;
}

/* Every sequence of stores to a few pages, up to @depth of them. */
static double exhaustive(unsigned long pages, unsigned int depth)
{
	double worst, most = a.written ? waste() : 0;
	struct arena *save;
	unsigned long i;

	if (!depth)
		return most;
	save = malloc(sizeof(*save));
	*save = a;
	for (i = 0; i < pages; i++) {
		if (a.state[i] == WRITTEN)
			continue;
		store(i);
		worst = exhaustive(pages, depth - 1);
		if (worst > most)
			most = worst;
		a = *save;
	}
	free(save);
	return most;
}

static void play_patterns(void)
{
	unsigned int i;

	printf("per page written:           faults  copied    cost\n");
	for (i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++) {
		const struct pattern *p = &patterns[i];
		double c, n;

		rng_state = 0x9e3779b97f4a7c15ULL;
		reset(MAX_PAGES, usual);
		p->play(a.pages, p->arg);
		c = cost() / (a.written * cost_single);
		n = (double)copied() / a.written;
		printf("%-26s %7.3f %7.3f %7.3f\n", p->name,
		       (double)a.faults / a.written, n, c);
		if (percent != WP_COPY_DENSE_PERCENT)
			continue;
		check(c <= p->max_cost, "costs more than it may");
		check(n <= p->max_copied + 1e-9, "copies more than it may");
	}
}

/* In each window as many pages as it takes, spread, and one store more. */
static double just_dense(void)
{
	unsigned long i, bait = 0;

	reset(4096, usual);
	for (i = 0; i < a.pages; i++) {
		const unsigned long at = i % WP_COPY_WINDOW;

		if (at * a.dense / WP_COPY_WINDOW != (at + 1) * a.dense / WP_COPY_WINDOW)
			store(i);
		else
			bait = i;
		if (at == WP_COPY_WINDOW - 1)
			store(bait);
	}
	return waste();
}

static void play_adversaries(bool quick)
{
	double worst = 0, w;
	unsigned int i, j;

	for (i = 0; i < (quick ? 4 : 24); i++) {
		w = greedy(i % 2 ? 128 : 512, i % 3 ? usual : 1 << 2, 2 + i * 3, i + 1);
		if (w > worst)
			worst = w;
	}
	printf("greedy adversary:          %.3f copied in vain per page written\n", worst);
	check(worst <= 1.5, "greedy adversary breaks the bound");

	worst = 0;
	for (i = 1; i <= 64; i++)
		for (j = 1; j <= 64; j += 3) {
			w = baits(4096, usual, i, j);
			if (w > worst)
				worst = w;
		}
	printf("runs that turn away:       %.3f\n", worst);
	check(worst <= 1.5, "runs that turn away break the bound");

	/* From where the run rule is just convinced, everything. */
	reset(48, usual);
	for (i = 16; i < 24; i++)
		store(i);
	worst = exhaustive(48, quick ? 2 : 4);
	printf("all sequences after a run: %.3f\n", worst);
	check(worst <= 1.5, "a sequence after a run breaks the bound");

	w = just_dense();
	printf("windows that are dense:    %.3f\n", w);
	check(w > 0 && w <= 1.5, "dense windows break the bound");
}

int main(int argc, char **argv)
{
	static const unsigned int percents[] = { WP_COPY_DENSE_PERCENT, 50 };
	const bool quick = argc > 1 && !strcmp(argv[1], "--quick");
	unsigned int i;

	for (i = 0; i < sizeof(percents) / sizeof(percents[0]); i++) {
		percent = percents[i];
		printf("%u %% of a window written:\n", percent);
		play_patterns();
		play_adversaries(quick);
	}
	printf(failed ? "# %u checks failed\n" : "# all as asked\n", failed);
	return failed != 0;
}

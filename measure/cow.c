// SPDX-License-Identifier: GPL-2.0
/*
 * cow: write memory that a living child shares.
 *
 * Every page must be copied before it is written. What was copied is read from
 * the page tables, before and after: a page whose PFN changed (or, where PFNs
 * are hidden, that became exclusively mapped) was copied; one that was copied
 * and is not in the pattern is waste. insns is the write loop less the same
 * loop over the memory it has made writable; path_insns is that less what
 * copying the pages itself costs (calibrated at start, see core.c). peak_kb is
 * what free memory fell by from before the memory was allocated until it was
 * written, the child still alive: in the lab nobody else allocates.
 */
#define _GNU_SOURCE
#include <string.h>
#include <sys/sysinfo.h>

#include "measure.h"

static const char *const cases[] = {
	"seq", "random", "random-10", "zipf", "store-64k", "store-2m",
};

/*
 * Copies of larger folios may come in this size too: a kernel that copies more
 * than a page at a time keeps to the sizes that are on, and bounds them.
 */
#define COPY_KB		64

static const unsigned int sizes[] = { 4, 16, 64, 256, 2048 };

struct copied {
	size_t pages;
	size_t waste;
	double share;
};

static bool was_copied(const struct snapshot *old, const struct snapshot *cur, size_t i)
{
	if (old->pfns && cur->pfns)
		return PM_PFN(old->pme[i]) != PM_PFN(cur->pme[i]);
	return cur->pme[i] & PM_EXCLUSIVE;
}

/* Compare the page tables with what they were; the child is still alive. */
static bool count(const struct where *w, const struct pattern *p, const struct snapshot *old,
		  const struct region *r, struct copied *c)
{
	struct snapshot cur;
	bool ok = true;
	size_t i;

	memset(c, 0, sizeof(*c));
	if (!snapshot_take(&cur, r->base, r->len)) {
		fail(w, "cannot read /proc/self/pagemap");
		return false;
	}
	for (i = 0; i < r->pages; i++) {
		bool copied = was_copied(old, &cur, i);

		if (p->written[i] && !copied) {
			fail(w, "page %zu was written and is still shared with the child", i);
			ok = false;
			break;
		}
		c->pages += copied;
		c->waste += copied && !p->written[i];
	}
	c->share = large_share(&cur, p->written);
	snapshot_free(&cur);
	return ok;
}

static size_t free_memory(void)
{
	struct sysinfo si;

	return sysinfo(&si) ? 0 : (size_t)si.freeram * si.mem_unit;
}

struct pass {
	size_t free;		/* bytes, before anything was allocated */
	struct region r;
	struct snapshot old;
	struct child c;
};

static bool begin(struct pass *x, const struct where *w)
{
	x->free = free_memory();
	if (!region_alloc(&x->r, w, MAP_BY_PTES))
		return false;
	if (w->kb > COPY_KB)
		sizes_add(COPY_KB);
	if (!snapshot_take(&x->old, x->r.base, x->r.len)) {
		fail(w, "cannot read /proc/self/pagemap");
	} else {
		if (child_start(&x->c, NULL, NULL))
			return true;
		fail(w, "no child");
		snapshot_free(&x->old);
	}
	region_free(&x->r);
	return false;
}

static void end(struct pass *x)
{
	child_stop(&x->c);
	snapshot_free(&x->old);
	region_free(&x->r);
}

static void one(const struct where *w, const struct pattern *p)
{
	struct series insns = { 0 }, path = { 0 }, faults = { 0 }, peak = { 0 };
	struct copied c = { 0 };
	struct latency lat;
	struct pass x;
	uint64_t first, again, before, after;
	double cost;
	size_t left;
	unsigned int i, repeats = opt.repeats + (p->n < 1000 ? 2 : 0);
	bool ok = true;

	progress(w);
	/* of few stores, a timer tick is a large part */
	for (i = 0; ok && i < repeats; i++) {
		if (!begin(&x, w))
			return;
		minor_faults();
		before = minor_faults();
		first = pattern_write(p, x.r.base);
		after = minor_faults();
		again = pattern_write(p, x.r.base);
		left = free_memory();
		ok = count(w, p, &x.old, &x.r, &c);
		end(&x);
		cost = first > again ? (double)(first - again) : 0;
		series_add(&insns, cost);
		cost -= (double)(c.pages * copy_cost);
		series_add(&path, cost > 0 ? cost : 0);
		series_add(&faults, (double)(after - before));
		series_add(&peak, x.free > left ? (double)((x.free - left) / KB) : 0);
	}
	if (!ok)
		return;
	latency_init(&lat, p->n);
	for (i = 0; i < opt.repeats; i++) {
		if (!begin(&x, w))
			goto out;
		pattern_time(p, x.r.base, lat.sample);
		end(&x);
	}
	row_series(w, "insns", &insns);
	row_series(w, "path_insns", &path);
	row_series(w, "faults", &faults);
	latency_rows(&lat, w);
	row(w, "copied_kb", (double)(c.pages * pgsize / KB));
	row(w, "waste_kb", (double)(c.waste * pgsize / KB));
	row_series(w, "peak_kb", &peak);
	if (c.share >= 0)
		row(w, "large_share", c.share);
	else
		skip(w, "large_share: /proc/kpageflags is not readable; run as root");
out:
	latency_free(&lat);
}

/**
 * run_cow - the experiment "cow"
 */
void run_cow(void)
{
	struct where w = { .experiment = "cow" };
	struct pattern p;
	unsigned int s, c;

	/* twice in the worst case: the child's and ours */
	w.bytes = memory_for(64 * MB, 3);
	for (s = 0; s < ARRAY_SIZE(sizes); s++) {
		w.kb = sizes[s];
		if (opt.quick && (w.kb == 16 || w.kb == 256))
			continue;
		for (c = 0; c < ARRAY_SIZE(cases); c++) {
			w.name = cases[c];
			if (!size_obtainable(&w))
				continue;
			pattern_make(&p, w.name, w.bytes / pgsize);
			one(&w, &p);
			pattern_free(&p);
		}
	}
}

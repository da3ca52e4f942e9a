// SPDX-License-Identifier: GPL-2.0
/*
 * zero: read every page first, which maps the zero page, then write.
 *
 * insns is the write loop less the same loop over the memory it has made
 * writable.
 */
#define _GNU_SOURCE
#include <string.h>

#include "measure.h"

static const char *const cases[] = { "seq", "random" };
static const unsigned int sizes[] = { 4, 64 };

static bool begin(struct region *r, const struct where *w)
{
	struct snapshot s;
	size_t i;
	bool ok = true;

	if (!region_reserve(r, w))
		return false;
	for (i = 0; i < r->pages; i++)
		if (*(volatile uint32_t *)(r->base + i * pgsize))
			ok = false;
	if (!ok || !snapshot_take(&s, r->base, r->len)) {
		fail(w, "fresh memory was not zero, or pagemap is not readable");
		region_free(r);
		return false;
	}
	/* one and the same page everywhere: the zero page, not memory of ours */
	for (i = 0; i < r->pages && ok; i++)
		ok = (s.pme[i] & PM_PRESENT) && (!s.pfns || PM_PFN(s.pme[i]) == PM_PFN(s.pme[0]));
	snapshot_free(&s);
	if (!ok) {
		fail(w, "the reads did not map the small zero page");
		region_free(r);
	}
	return ok;
}

static void one(const struct where *w, const struct pattern *p)
{
	struct series insns = { 0 }, faults = { 0 };
	struct latency lat;
	struct snapshot s;
	struct region r;
	uint64_t first, again, before, after;
	double share = -1;
	unsigned int i;

	progress(w);
	for (i = 0; i < opt.repeats; i++) {
		if (!begin(&r, w))
			return;
		minor_faults();
		before = minor_faults();
		first = pattern_write(p, r.base);
		after = minor_faults();
		again = pattern_write(p, r.base);
		if (snapshot_take(&s, r.base, r.len)) {
			share = large_share(&s, p->written);
			snapshot_free(&s);
		}
		region_free(&r);
		series_add(&insns, first > again ? (double)(first - again) : 0);
		series_add(&faults, (double)(after - before));
	}
	latency_init(&lat, p->n);
	for (i = 0; i < opt.repeats; i++) {
		if (!begin(&r, w))
			goto out;
		pattern_time(p, r.base, lat.sample);
		region_free(&r);
	}
	row_series(w, "insns", &insns);
	row_series(w, "faults", &faults);
	latency_rows(&lat, w);
	if (share >= 0)
		row(w, "large_share", share);
	else
		skip(w, "large_share: /proc/kpageflags is not readable; run as root");
out:
	latency_free(&lat);
}

/**
 * run_zero - the experiment "zero"
 */
void run_zero(void)
{
	struct where w = { .experiment = "zero" };
	struct pattern p;
	unsigned int s, c;

	w.bytes = memory_for(64 * MB, 2);
	for (s = 0; s < ARRAY_SIZE(sizes); s++) {
		w.kb = sizes[s];
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

// SPDX-License-Identifier: GPL-2.0
/*
 * lazyfree: madvise(MADV_FREE).
 *
 *   full      all of the memory in one call
 *   full-pmd  the same, 2 MiB folios still mapped by PMDs
 *   partial   8 KiB in the middle of every 2 MiB, a call each
 *   shared    all of the memory in one call, a child alive that shares it
 *
 * large_share: of the memory that was not named (partial) or of all of it, how
 * much lies in folios of 64 KiB and more afterwards.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "measure.h"

#ifndef MADV_FREE
#define MADV_FREE	8
#endif

#define PART		(8 * KB)	/* named by a partial call */
#define EVERY		(2 * MB)
#define PART_AT		(MB + 24 * KB)	/* inside a folio of every size from 16 KiB on */

struct result {
	struct series insns;
	size_t calls;
	double share;
};

static bool advise(const struct where *w, void *p, size_t len)
{
	if (!madvise(p, len, MADV_FREE))
		return true;
	fail(w, "madvise(MADV_FREE): %s", strerror(errno));
	return false;
}

/*
 * What was not named must still hold its number. What was named holds it too,
 * or reads as zero where it was reclaimed meanwhile.
 */
static bool contents(const struct where *w, const struct region *r, bool partial)
{
	uint32_t got;
	size_t i, at;
	bool named;

	for (i = 0; i < r->pages; i++) {
		at = i * pgsize % EVERY;
		named = !partial || (at >= PART_AT && at < PART_AT + PART);
		got = *(volatile uint32_t *)(r->base + i * pgsize);
		if (got != (uint32_t)i + 1 && (got || !named)) {
			fail(w, "page %zu lost its content", i);
			return false;
		}
	}
	return true;
}

static bool once(const struct where *w, struct result *res, enum mapping how, bool partial,
		 bool shared)
{
	uint8_t *kept = NULL;
	struct region r;
	struct snapshot s;
	struct child c;
	uint64_t from, to, sum = 0;
	bool ok = true;
	size_t off;

	if (!region_alloc(&r, w, how))
		return false;
	if (shared && !child_start(&c, NULL, NULL)) {
		fail(w, "no child");
		region_free(&r);
		return false;
	}
	res->calls = 0;
	if (partial) {
		kept = scratch(r.pages);
		memset(kept, 1, r.pages);
		for (off = PART_AT; ok && off < r.len; off += EVERY) {
			from = now();
			ok = advise(w, r.base + off, PART);
			to = now();
			sum += elapsed(from, to);
			res->calls++;
			memset(kept + off / pgsize, 0, PART / pgsize);
		}
	} else {
		from = now();
		ok = advise(w, r.base, r.len);
		to = now();
		sum = elapsed(from, to);
		res->calls = 1;
	}
	series_add(&res->insns, (double)sum);
	res->share = -1;
	if (ok && snapshot_take(&s, r.base, r.len)) {
		res->share = large_share(&s, kept);
		snapshot_free(&s);
	}
	ok = ok && contents(w, &r, partial);
	if (kept)
		munmap(kept, r.pages);
	if (shared)
		child_stop(&c);
	region_free(&r);
	return ok;
}

static void one(const struct where *w, enum mapping how, bool partial, bool shared)
{
	struct result res = { 0 };
	unsigned int i, n = opt.repeats;

	if (!size_obtainable(w))
		return;
	progress(w);
	/* a GiB takes its time and repeats well: twice will do */
	if (n > 2 && w->bytes >= GB)
		n = 2;
	for (i = 0; i < n; i++)
		if (!once(w, &res, how, partial, shared))
			return;
	row_series(w, "insns", &res.insns);
	row_scaled(w, "insns_per_call", &res.insns, (double)res.calls);
	if (!partial)
		row_scaled(w, "insns_per_page", &res.insns, (double)(w->bytes / pgsize));
	if (res.share >= 0)
		row(w, "large_share", res.share);
	else
		skip(w, "large_share: /proc/kpageflags is not readable; run as root");
}

/**
 * run_lazyfree - the experiment "lazyfree"
 */
void run_lazyfree(void)
{
	static const unsigned int full[] = { 4, 16, 32, 64, 128, 256, 512, 1024, 2048 };
	static const unsigned int partial[] = { 16, 64, 256, 1024, 2048 };
	static const unsigned int shared[] = { 4, 64, 2048 };
	struct where w = { .experiment = "lazyfree" };
	unsigned int i;

	w.bytes = memory_for(opt.quick ? 256 * MB : GB, 1);
	w.name = "full";
	for (i = 0; i < ARRAY_SIZE(full); i++) {
		w.kb = full[i];
		if (opt.quick && w.kb != 4 && w.kb != 64 && w.kb != 2048)
			continue;
		one(&w, MAP_BY_PTES, false, false);
	}
	w.name = "full-pmd";
	w.kb = (unsigned int)(pmdsize / KB);
	one(&w, MAP_AS_FAULTED, false, false);

	w.bytes = memory_for(256 * MB, 2);
	w.name = "partial";
	for (i = 0; i < ARRAY_SIZE(partial); i++) {
		w.kb = partial[i];
		if (opt.quick && w.kb != 64 && w.kb != 2048)
			continue;
		one(&w, MAP_BY_PTES, true, false);
	}
	w.name = "shared";
	for (i = 0; i < ARRAY_SIZE(shared); i++) {
		w.kb = shared[i];
		one(&w, MAP_BY_PTES, false, true);
	}
}

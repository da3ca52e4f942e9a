// SPDX-License-Identifier: GPL-2.0
/*
 * guard: paths that must not get slower.
 *
 *   first-touch  one store per page of memory never touched
 *   cow-4k       one store per page, 4 KiB folios, the child alive
 *   fork         fork() of a process with this memory, until it returns
 *   exit         from letting a child with this memory go until wait() returns
 *   munmap       of all of it at once
 *   mprotect     of all of it, to read-only and back
 *   mremap       of all of it, to a place that no page table can be moved to
 *
 * Folios of 2 MiB are mapped by PTEs but where they are first touched.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "measure.h"

static const unsigned int sizes[] = { 4, 64, 2048 };

static bool first_touch(const struct where *w, struct series *s)
{
	struct pattern p;
	struct region r;
	uint64_t first, again;
	bool ok;

	if (!region_reserve(&r, w))
		return false;
	pattern_make(&p, "seq", r.pages);
	first = pattern_write(&p, r.base);
	again = pattern_write(&p, r.base);
	pattern_free(&p);
	ok = region_check(&r, w, MAP_AS_FAULTED);
	region_free(&r);
	series_add(s, first > again ? (double)(first - again) : 0);
	return ok;
}

static bool cow_4k(const struct where *w, struct series *s)
{
	struct pattern p;
	struct region r;
	struct child c;
	uint64_t first, again;

	if (!region_alloc(&r, w, MAP_BY_PTES))
		return false;
	pattern_make(&p, "seq", r.pages);
	if (!child_start(&c, NULL, NULL)) {
		fail(w, "no child");
		pattern_free(&p);
		region_free(&r);
		return false;
	}
	minor_faults();
	first = pattern_write(&p, r.base);
	again = pattern_write(&p, r.base);
	child_stop(&c);
	pattern_free(&p);
	region_free(&r);
	series_add(s, first > again ? (double)(first - again) : 0);
	return true;
}

static bool do_fork(const struct where *w, struct series *s)
{
	uint64_t best = UINT64_MAX;
	struct region r;
	struct child c;
	bool ok = true;
	int i;

	if (!region_alloc(&r, w, MAP_BY_PTES))
		return false;
	/* some: what a fork needs from the slab caches differs from one to the next */
	for (i = 0; ok && i < 5; i++) {
		ok = child_start(&c, NULL, NULL);
		if (!ok) {
			fail(w, "no child");
			break;
		}
		if (c.fork_time < best)
			best = c.fork_time;
		child_stop(&c);
	}
	series_add(s, (double)best);
	region_free(&r);
	return ok;
}

struct in_child {
	struct region r;
	const struct where *w;
};

static bool populate(void *arg)
{
	struct in_child *in = arg;

	return region_alloc(&in->r, in->w, MAP_BY_PTES);
}

static bool do_exit(const struct where *w, struct series *s)
{
	struct in_child in = { .w = w };
	struct child c;
	uint64_t from, to;
	bool ok;

	sizes_set(w->kb);
	if (!child_start(&c, populate, &in)) {
		fail(w, "the child could not have its memory in such folios");
		return false;
	}
	from = now();
	ok = child_stop(&c);
	to = now();
	series_add(s, (double)elapsed(from, to));
	return ok;
}

static bool do_munmap(const struct where *w, struct series *s)
{
	struct region r;
	uint64_t from, to;

	if (!region_alloc(&r, w, MAP_BY_PTES))
		return false;
	from = now();
	munmap(r.base, r.len);
	to = now();
	series_add(s, (double)elapsed(from, to));
	region_free(&r);
	return true;
}

static bool do_mprotect(const struct where *w, struct series *s)
{
	struct region r;
	uint64_t from, to;
	int err;

	if (!region_alloc(&r, w, MAP_BY_PTES))
		return false;
	from = now();
	err = mprotect(r.base, r.len, PROT_READ);
	err |= mprotect(r.base, r.len, PROT_READ | PROT_WRITE);
	to = now();
	if (err)
		fail(w, "mprotect: %s", strerror(errno));
	series_add(s, (double)elapsed(from, to));
	region_free(&r);
	return !err;
}

static bool do_mremap(const struct where *w, struct series *s)
{
	size_t room = w->bytes + 2 * pmdsize;
	struct region r;
	uint64_t from, to;
	char *map, *target;
	void *got;

	if (!region_alloc(&r, w, MAP_BY_PTES))
		return false;
	map = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (map == MAP_FAILED) {
		fail(w, "mmap: %s", strerror(errno));
		region_free(&r);
		return false;
	}
	target = (char *)(((uintptr_t)map + pmdsize - 1) / pmdsize * pmdsize) + 64 * KB;
	from = now();
	got = mremap(r.base, r.len, r.len, MREMAP_MAYMOVE | MREMAP_FIXED, target);
	to = now();
	if (got != target)
		fail(w, "mremap: %s", strerror(errno));
	series_add(s, (double)elapsed(from, to));
	munmap(map, room);
	region_free(&r);
	return got == target;
}

static const struct {
	const char *name;
	bool (*run)(const struct where *w, struct series *s);
	bool only_4k;
} cases[] = {
	{ "first-touch", first_touch, false },
	{ "cow-4k", cow_4k, true },
	{ "fork", do_fork, false },
	{ "exit", do_exit, false },
	{ "munmap", do_munmap, false },
	{ "mprotect", do_mprotect, false },
	{ "mremap", do_mremap, false },
};

/**
 * run_guard - the experiment "guard"
 */
void run_guard(void)
{
	struct where w = { .experiment = "guard" };
	unsigned int z, c, i;

	w.bytes = memory_for(64 * MB, 2);
	for (z = 0; z < ARRAY_SIZE(sizes); z++) {
		w.kb = sizes[z];
		for (c = 0; c < ARRAY_SIZE(cases); c++) {
			struct series s = { 0 }, warm = { 0 };
			bool ok;

			w.name = cases[c].name;
			if (cases[c].only_4k && w.kb != 4)
				continue;
			if (!size_obtainable(&w))
				continue;
			progress(&w);
			/* once unmeasured: the page allocator settles */
			ok = cases[c].run(&w, &warm);
			/* two more: a timer tick is 1 % of the shorter ones */
			for (i = 0; ok && i < opt.repeats + 2; i++)
				ok = cases[c].run(&w, &s);
			if (ok)
				row_series(&w, "insns", &s);
		}
	}
}

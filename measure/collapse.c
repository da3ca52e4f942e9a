// SPDX-License-Identifier: GPL-2.0
/*
 * collapse: single pages in the write fault, khugepaged afterwards.
 *
 * As cow, memory that a living child shares is written; then khugepaged goes
 * through it twice, without pause.
 *
 *   insns             the write loop, as in cow
 *   collapse_insns    from letting khugepaged go until it was through twice: it
 *                     has the CPU for itself, so this is what it costs
 *   share_before      share of the written memory in folios of 64 KiB and more
 *   large_share       the same when khugepaged has been through
 *
 * Then the same at the pace that khugepaged has by default (10 s of sleep, 4096
 * pages), where nearly all pages are written:
 *
 *   large_ms          from the last write until nine tenths of the memory are in
 *                     folios of 64 KiB and more, give or take STEP_MS
 *   khugepaged_insns  CPU time of khugepaged until then
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "measure.h"

static const char *const cases[] = { "seq", "random", "random-10" };
static const unsigned int sizes[] = { 64, 2048 };

#define KHUGEPAGED	THP_DIR "/khugepaged"
#define STEP_MS		500U
#define WAIT_MS		120000U

static unsigned long full_scans(void)
{
	char val[64];

	return setting_get(KHUGEPAGED "/full_scans", val, sizeof(val)) ?
	       strtoul(val, NULL, 10) : 0;
}

/* khugepaged learnt to make smaller folios than a PMD's only lately. */
static bool collapsible(unsigned int kb)
{
	char path[128];

	snprintf(path, sizeof(path), THP_DIR "/hugepages-%ukB/stats/collapse_alloc", kb);
	return kb == pmdsize / KB || access(path, F_OK) == 0;
}

static bool share_of(const struct region *r, const struct pattern *p, double *share)
{
	struct snapshot s;

	if (!snapshot_take(&s, r->base, r->len))
		return false;
	*share = large_share(&s, p->written);
	snapshot_free(&s);
	return true;
}

/* Let khugepaged run until it has been through all memory twice. */
static bool khugepaged_through(const struct where *w, uint64_t *cost)
{
	unsigned long start;
	uint64_t from, to;

	setting_set(KHUGEPAGED "/pages_to_scan", "1000000");
	start = full_scans();
	from = now();
	setting_set(KHUGEPAGED "/scan_sleep_millisecs", "0");
	/* the first scan may have begun in the middle */
	do {
		usleep(1000);
		to = now();
	} while (full_scans() < start + 3 && to - from < 30000000000u);
	khugepaged_pause();
	*cost = elapsed(from, to);
	if (full_scans() >= start + 3)
		return true;
	fail(w, "khugepaged was not through after 30 seconds");
	return false;
}

/* The clock of khugepaged's CPU time. */
static bool khugepaged_clock(clockid_t *clock)
{
	char path[300], comm[32];
	struct dirent *d;
	DIR *proc = opendir("/proc");
	bool found = false;

	while (proc && !found && (d = readdir(proc))) {
		snprintf(path, sizeof(path), "/proc/%s/comm", d->d_name);
		found = atoi(d->d_name) > 0 && setting_get(path, comm, sizeof(comm)) &&
			!strcmp(comm, "khugepaged") &&
			!clock_getcpuclockid(atoi(d->d_name), clock);
	}
	if (proc)
		closedir(proc);
	return found;
}

static uint64_t clock_read(clockid_t clock)
{
	struct timespec ts = { 0 };

	clock_gettime(clock, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/*
 * Memory that a process has that has been going on for a while: known to
 * khugepaged. A kernel may add a process to its list only when memory that has
 * been touched is advised (7.3 does, unless the fault made a PMD-mapped folio).
 */
static bool begin(struct region *r, struct child *c, const struct where *w)
{
	if (!region_alloc(r, w, MAP_BY_PTES))
		return false;
	madvise(r->base, r->len, MADV_NOHUGEPAGE);
	madvise(r->base, r->len, MADV_HUGEPAGE);
	if (child_start(c, NULL, NULL))
		return true;
	fail(w, "no child");
	region_free(r);
	return false;
}

/* How long until the memory is in large folios again, at the default pace? */
static void wait_for_large(const struct where *w, const struct pattern *p)
{
	uint64_t from, cpu, ms = 0;
	clockid_t clock;
	struct region r;
	struct child c;
	double share = 0;
	bool ok;

	progress(w);
	if (!begin(&r, &c, w))
		return;
	setting_set(KHUGEPAGED "/pages_to_scan", "4096");
	setting_set(KHUGEPAGED "/scan_sleep_millisecs", "10000");
	/* it is awake now: let it find nothing and go to sleep */
	usleep(STEP_MS * 1000);
	if (!khugepaged_clock(&clock)) {
		fail(w, "there is no khugepaged");
		goto out;
	}
	cpu = clock_read(clock);
	pattern_write(p, r.base);
	from = now();
	while ((ok = share_of(&r, p, &share)) && share < 0.9 && ms < WAIT_MS) {
		usleep(STEP_MS * 1000);
		ms = (now() - from) / 1000000;
	}
	cpu = clock_read(clock) - cpu;
	if (!ok || share < 0.9) {
		fail(w, "after %u s the share in large folios is %.2f", WAIT_MS / 1000, share);
		goto out;
	}
	row(w, "large_ms", (double)ms);
	row(w, "khugepaged_insns", (double)cpu);
out:
	khugepaged_pause();
	child_stop(&c);
	region_free(&r);
}

static void one(const struct where *w, const struct pattern *p)
{
	struct series insns = { 0 }, cost = { 0 };
	unsigned int i, n = opt.repeats > 2 ? 2 : opt.repeats;
	double before = 0, after = 0;
	uint64_t first, again, took;
	struct region r;
	struct child c;
	bool ok = true;

	progress(w);
	for (i = 0; ok && i < n; i++) {
		if (!begin(&r, &c, w))
			return;
		minor_faults();
		first = pattern_write(p, r.base);
		again = pattern_write(p, r.base);
		ok = share_of(&r, p, &before) && khugepaged_through(w, &took) &&
		     share_of(&r, p, &after);
		child_stop(&c);
		region_free(&r);
		if (!ok)
			break;
		series_add(&insns, first > again ? (double)(first - again) : 0);
		series_add(&cost, (double)took);
	}
	if (!ok)
		return;
	row_series(w, "insns", &insns);
	row_series(w, "collapse_insns", &cost);
	row(w, "share_before", before);
	row(w, "large_share", after);
}

/**
 * run_collapse - the experiment "collapse"
 */
void run_collapse(void)
{
	struct where w = { .experiment = "collapse" };
	struct pattern p;
	unsigned int s, c;

	w.bytes = memory_for(64 * MB, 3);
	for (s = 0; s < ARRAY_SIZE(sizes); s++) {
		w.kb = sizes[s];
		if (opt.quick && w.kb != 64)
			continue;
		for (c = 0; c < ARRAY_SIZE(cases); c++) {
			w.name = cases[c];
			if (!is_root()) {
				skip(&w, "khugepaged's pace is set by root only; run as root");
				continue;
			}
			if (!size_obtainable(&w))
				continue;
			if (!collapsible(w.kb)) {
				skip(&w, "khugepaged makes folios of %zu KiB only; a kernel with "
				     "stats/collapse_alloc for this size makes others", pmdsize / KB);
				continue;
			}
			pattern_make(&p, w.name, w.bytes / pgsize);
			one(&w, &p);
			if (w.kb == 64 && strcmp(w.name, "random-10"))
				wait_for_large(&w, &p);
			pattern_free(&p);
		}
	}
}

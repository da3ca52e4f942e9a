// SPDX-License-Identifier: GPL-2.0
/*
 * Write faults on a large folio that is exclusive again, after fork() and the
 * child's exit: contents, how many faults it takes, what becomes dirty and
 * accessed, and swap. Everything but the number of faults holds on any kernel.
 */
#include "common.h"

/* --- contents ----------------------------------------------------------- */

static int parent_first(const struct layout *l, const char *mode)
{
	struct region r;
	struct peer p;

	NEED(region_get(&r, l, FEW(l)));
	fill_range(r.mem, 0, r.pages, 0);
	NEED(peer_fork(&p));
	fill_range(r.mem, 0, r.pages, 1);
	FAIL_IF(!peer_filled(&p, r.mem, 0, r.pages, 0), "child sees the parent's writes");
	FAIL_IF(!peer_stamp(&p, r.mem, 0, r.pages, 2), "child");
	FAIL_IF(fill_bad(r.mem, 0, r.pages, 1) >= 0, "parent sees the child's writes");
	FAIL_IF(!peer_stamped(&p, r.mem, 0, r.pages, 2), "child lost its writes");
	FAIL_IF(!peer_quit(&p), "child");
	FAIL_IF(fill_bad(r.mem, 0, r.pages, 1) >= 0, "parent");
	return KSFT_PASS;
}

static int child_first(const struct layout *l, const char *mode)
{
	struct region r;
	struct peer p;

	NEED(region_get(&r, l, FEW(l)));
	fill_range(r.mem, 0, r.pages, 0);
	NEED(peer_fork(&p));
	FAIL_IF(!peer_stamp(&p, r.mem, 0, r.pages, 2), "child");
	FAIL_IF(fill_bad(r.mem, 0, r.pages, 0) >= 0, "parent sees the child's writes");
	fill_range(r.mem, 0, r.pages, 1);
	FAIL_IF(!peer_stamped(&p, r.mem, 0, r.pages, 2), "child sees the parent's writes");
	FAIL_IF(!peer_quit(&p), "child");
	FAIL_IF(fill_bad(r.mem, 0, r.pages, 1) >= 0, "parent");
	return KSFT_PASS;
}

/* Every second page by each: reused, copied and again exclusive side by side. */
static int alternating(const struct layout *l, const char *mode)
{
	struct region r;
	struct peer p;

	NEED(region_get(&r, l, FEW(l)));
	NEED(peer_fork(&p));
	for (int i = 0; i < r.pages; i += 2) {
		stamp_page(r.mem + i * PAGE, i, 1);
		FAIL_IF(!peer_stamp(&p, r.mem + (i + 1) * PAGE, i + 1, 1, 2), "child");
	}
	for (int i = 0; i < r.pages; i += 2) {
		FAIL_STAMP(r.mem + i * PAGE, i, 1, 1, "parent's own");
		FAIL_STAMP(r.mem + (i + 1) * PAGE, i + 1, 1, 0, "parent sees the child's");
		FAIL_IF(!peer_stamped(&p, r.mem + i * PAGE, i, 1, 0), "child sees the parent's");
		FAIL_IF(!peer_stamped(&p, r.mem + (i + 1) * PAGE, i + 1, 1, 2), "child's own");
	}
	stamp_range(r.mem, 0, r.pages, 3);
	for (int i = 0; i < r.pages; i += 2) {
		FAIL_IF(!peer_stamped(&p, r.mem + i * PAGE, i, 1, 0), "child sees the parent's");
		FAIL_IF(!peer_stamped(&p, r.mem + (i + 1) * PAGE, i + 1, 1, 2), "child's own");
	}
	FAIL_IF(!peer_stamp(&p, r.mem, 0, r.pages, 4), "child");
	FAIL_STAMP(r.mem, 0, r.pages, 3, "parent");
	return KSFT_PASS;
}

/* One byte a page: all others of the folio have to be what they were. */
static int byte_per_page(const struct layout *l, const char *mode)
{
	struct region r;

	NEED(region_get(&r, l, FEW(l)));
	fill_range(r.mem, 0, r.pages, 0);
	NEED(fork_and_exit());
	for (int i = 0; i < r.pages; i++)
		r.mem[i * PAGE + 8 * (i % 512)] ^= 0xff;
	for (int i = 0; i < r.pages; i++)
		r.mem[i * PAGE + 8 * (i % 512)] ^= 0xff;
	FAIL_IF(fill_bad(r.mem, 0, r.pages, 0) >= 0, "contents changed");
	return KSFT_PASS;
}

static int sequential_faults(const struct layout *l, const char *mode)
{
	struct region r;
	long faults;

	NEED(region_get_unshared(&r, l, 3));
	FAIL_STAMP(r.mem, 0, r.pages, 0, "after fork");
	faults = stamp_faults(r.mem, 0, r.pages, 1);
	FAIL_STAMP(r.mem, 0, r.pages, 1, "written");
	FAIL_IF(!reuse_faults_fit(mode, r.fpages, 3, faults), "faults");
	/* And they stay writable. */
	faults = stamp_faults(r.mem, 0, r.pages, 2);
	FAIL_IF(faults, "%ld faults on memory just written", faults);
	return KSFT_PASS;
}

static int backward_faults(const struct layout *l, const char *mode)
{
	long before, faults, hi;
	struct region r;

	NEED(region_get_unshared(&r, l, 2));
	minflt();
	before = minflt();
	for (int i = r.pages - 1; i >= 0; i--)
		stamp_page(r.mem + i * PAGE, i, 1);
	faults = minflt() - before;
	FAIL_STAMP(r.mem, 0, r.pages, 1, "written");
	/* Never more than one a page, and in no batching mode one a page. */
	hi = r.pages;
	if (mode && strcmp(mode, "never") && r.fpages >= 16)
		hi = r.pages / 4;
	FAIL_IF(faults > hi, "%ld faults on %d pages", faults, r.pages);
	return KSFT_PASS;
}

static int random_faults(const struct layout *l, const char *mode)
{
	long before, faults, hi;
	struct region r;

	NEED(region_get_unshared(&r, l, 2));
	minflt();
	before = minflt();
	/* 5 has no factor in common with a power of two. */
	for (int i = 0, k = 3; i < r.pages; i++, k = (k + 5 * 37) % r.pages)
		stamp_page(r.mem + k * PAGE, k, 1);
	faults = minflt() - before;
	FAIL_STAMP(r.mem, 0, r.pages, 1, "written");
	hi = r.pages;
	if (mode && strcmp(mode, "never") && r.fpages >= 16)
		hi = r.pages / 4;
	FAIL_IF(faults > hi, "%ld faults on %d pages", faults, r.pages);
	return KSFT_PASS;
}

/* One store: is the rest of the folio writable, and nothing beyond it? */
static int window_of_one_store(const struct layout *l, const char *mode)
{
	int k, n = 0, outside = 0;
	struct region r;

	NEED(region_get_unshared(&r, l, 3));
	k = r.fpages + r.fpages / 2;
	FAIL_IF(store_faults(r.mem + k * PAGE, 1) != 1, "store did not fault");
	/*
	 * Every page that is still write-protected is one that the store's
	 * fault left so, until a fault on one of them moves the window again.
	 */
	if (!mode || !strcmp(mode, "never"))
		return skip("kernel maps one page a fault%s", mode ? " in this mode" : "");
	if (!strcmp(mode, "whole")) {
		for (int i = 0; i < r.fpages; i++)
			if (i + r.fpages != k)
				n += !store_faults(r.mem + (r.fpages + i) * PAGE, 2);
		FAIL_IF(n != r.fpages - 1, "only %d pages of %d", n, r.fpages);
	} else if (!strcmp(mode, "block")) {
		int lo = k & ~15, hi = lo + 16;

		if (r.fpages < 16)
			return skip("folio smaller than a block");
		for (int i = lo; i < hi; i++)
			if (i != k)
				n += !store_faults(r.mem + i * PAGE, 2);
		FAIL_IF(n != 15, "only %d pages of 15", n);
		if (hi < 2 * r.fpages)
			FAIL_IF(store_faults(r.mem + hi * PAGE, 2) != 1,
				"page after the block was writable");
	}
	/* In all modes: the folios beside it were not touched. */
	outside += !store_faults(r.mem + (r.fpages - 1) * PAGE, 3);
	outside += !store_faults(r.mem + 2 * r.fpages * PAGE, 3);
	FAIL_IF(outside, "a page of another folio was writable");
	return KSFT_PASS;
}

/* The counters of the folio's size: each page was made writable once. */
static int counters(const struct layout *l, const char *mode)
{
	long faults, before[2], after[2];
	struct region r;
	bool on = mode && strcmp(mode, "never");

	if (thp_stat(l->folio, "wp_fault_reuse") < 0)
		return skip("kernel has no counter wp_fault_reuse");
	NEED(region_get_unshared(&r, l, 3));
	before[0] = thp_stat(l->folio, "wp_fault_reuse");
	before[1] = thp_stat(l->folio, "wp_fault_reuse_ptes");
	faults = stamp_faults(r.mem, 0, r.pages, 1);
	after[0] = thp_stat(l->folio, "wp_fault_reuse") - before[0];
	after[1] = thp_stat(l->folio, "wp_fault_reuse_ptes") - before[1];
	FAIL_IF(after[0] != (on ? faults : 0), "wp_fault_reuse counted %ld of %ld faults",
		after[0], faults);
	FAIL_IF(after[1] != (on ? r.pages : 0), "wp_fault_reuse_ptes counted %ld of %d pages",
		after[1], r.pages);
	return KSFT_PASS;
}

#define TRACING "/sys/kernel/tracing/"

static int tracepoint(const struct layout *l, const char *mode)
{
	char line[512], want[64];
	struct region r;
	int k, found = 0;
	FILE *f;

	if (access(TRACING "events/wp_fault/mm_wp_fault/enable", F_OK))
		return skip("kernel has no tracepoint mm_wp_fault, or tracefs is not mounted");
	if (!mode || !strcmp(mode, "never"))
		return skip("no window, no event");
	NEED(region_get_unshared(&r, l, 1));
	k = odd_page(&r);
	/* Truncating it is what empties the buffer. */
	SYS(close(open(TRACING "trace", O_WRONLY | O_TRUNC | O_CLOEXEC)));
	SYS(-!!file_write(TRACING "events/wp_fault/mm_wp_fault/enable", "1"));
	stamp_page(r.mem + k * PAGE, k, 1);
	SYS(-!!file_write(TRACING "events/wp_fault/mm_wp_fault/enable", "0"));
	f = fopen(TRACING "trace", "re");
	FAIL_IF(!f, "trace: %s", strerror(errno));
	snprintf(want, sizeof(want), "address=%p", r.mem + k * PAGE);
	while (fgets(line, sizeof(line), f)) {
		int order = -1, nr = -1;
		char *p = strstr(line, "order=");

		if (!strstr(line, want) || !p)
			continue;
		found++;
		FAIL_IF(sscanf(p, "order=%d start=0x%*x nr=%d", &order, &nr) != 2, "%s", line);
		FAIL_IF((PAGE << order) != r.folio || nr < 1 || nr > r.fpages ||
			!strstr(line, "reused"), "%s", line);
		FAIL_IF(!strcmp(mode, "whole") && nr != r.fpages, "%s", line);
	}
	fclose(f);
	FAIL_IF(found != 1, "%d events for one fault", found);
	return KSFT_PASS;
}

/* An exclusive page is reused, never copied. */
static int exclusive_not_copied(const struct layout *l, const char *mode)
{
	static uint64_t pfn[3 * 512];
	struct region r;

	NEED(region_get_unshared(&r, l, FEW(l) + 1));
	for (int i = 0; i < r.pages; i++)
		pfn[i] = pm_pfn(r.mem + i * PAGE);
	stamp_range(r.mem, 0, r.pages, 1);
	for (int i = 0; i < r.pages; i++)
		FAIL_IF(pm_pfn(r.mem + i * PAGE) != pfn[i], "page %d was copied", i);
	FAIL_IF(!is_folios(r.mem, r.size, r.folio), "folios fell apart");
	return KSFT_PASS;
}

static int survivor_is_child(const struct layout *l, const char *mode)
{
	struct region r;
	struct peer p;
	long faults;

	NEED(region_get(&r, l, FEW(l)));
	NEED(peer_fork(&p));
	SYS(munmap(r.mem, r.size));
	FAIL_IF(!peer_stamped(&p, r.mem, 0, r.pages, 0), "child lost its contents");
	faults = peer_stamp_faults(&p, r.mem, 0, r.pages, 1);
	FAIL_IF(!peer_stamped(&p, r.mem, 0, r.pages, 1), "child lost its writes");
	if (!l->pmd)
		FAIL_IF(!reuse_faults_fit(mode, r.fpages, FEW(l), faults), "faults");
	FAIL_IF(!peer_quit(&p), "child");
	return KSFT_PASS;
}

static int second_child(const struct layout *l, const char *mode)
{
	struct region r;
	struct peer p, q;

	NEED(region_get(&r, l, FEW(l)));
	NEED(peer_fork(&p));
	NEED(peer_fork(&q));
	FAIL_IF(!peer_quit(&p), "first child");
	stamp_range(r.mem, 0, r.pages, 1);
	FAIL_IF(!peer_stamped(&q, r.mem, 0, r.pages, 0), "second child sees the parent's writes");
	FAIL_IF(!peer_stamp(&q, r.mem, 0, r.pages, 2), "second child");
	FAIL_STAMP(r.mem, 0, r.pages, 1, "parent sees the child's writes");
	FAIL_IF(!peer_quit(&q), "second child");
	stamp_range(r.mem, 0, r.pages, 3);
	FAIL_STAMP(r.mem, 0, r.pages, 3, "parent");
	return KSFT_PASS;
}

/* More processes than a folio keeps track of by name (two). */
static int many_children(const struct layout *l, const char *mode)
{
	struct region r;
	struct peer p[4];

	NEED(region_get(&r, l, 1));
	for (int i = 0; i < 4; i++)
		NEED(peer_fork(&p[i]));
	FAIL_IF(!peer_stamp(&p[2], r.mem, 0, r.pages / 2 + 1, 7), "third child");
	for (int i = 0; i < 3; i++)
		FAIL_IF(!peer_quit(&p[i]), "child");
	stamp_range(r.mem, 0, r.pages, 1);
	FAIL_IF(!peer_stamped(&p[3], r.mem, 0, r.pages, 0), "last child sees the parent's writes");
	FAIL_IF(!peer_stamp(&p[3], r.mem, 0, r.pages, 2), "last child");
	FAIL_STAMP(r.mem, 0, r.pages, 1, "parent sees the child's writes");
	return KSFT_PASS;
}

static int grandchild(const struct layout *l, const char *mode)
{
	struct region r;
	struct peer p;

	NEED(region_get(&r, l, FEW(l)));
	NEED(peer_fork(&p));
	/* The child writes some, then a grandchild takes its place. */
	FAIL_IF(!peer_stamp(&p, r.mem, 0, r.fpages / 2, 2), "child");
	FAIL_IF(!peer_succeed(&p), "grandchild");
	stamp_range(r.mem, 0, r.pages, 1);
	FAIL_IF(!peer_stamped(&p, r.mem, 0, r.fpages / 2, 2), "grandchild lost the child's");
	FAIL_IF(!peer_stamped(&p, r.mem + r.fpages / 2 * PAGE, r.fpages / 2,
			      r.pages - r.fpages / 2, 0),
		"grandchild sees the first process's writes");
	FAIL_IF(!peer_stamp(&p, r.mem, 0, r.pages, 3), "grandchild");
	FAIL_STAMP(r.mem, 0, r.pages, 1, "parent sees the grandchild's writes");
	FAIL_IF(!peer_stamped(&p, r.mem, 0, r.pages, 3), "grandchild");
	FAIL_IF(!peer_quit(&p), "grandchild");
	return KSFT_PASS;
}

/* The child is gone, but its own child still maps the folio. */
static int grandchild_keeps(const struct layout *l, const char *mode)
{
	struct region r;
	struct peer p;

	NEED(region_get(&r, l, 1));
	NEED(peer_fork(&p));
	FAIL_IF(!peer_succeed(&p), "grandchild");
	FAIL_IF(!peer_sleeper(&p), "great-grandchild");
	for (int i = 0; i < r.pages; i += 3)
		stamp_page(r.mem + i * PAGE, i, 1);
	for (int i = 0; i < r.pages; i++)
		FAIL_IF(!peer_stamped(&p, r.mem + i * PAGE, i, 1, 0), "grandchild");
	FAIL_IF(!peer_stamp(&p, r.mem, 0, r.pages, 2), "grandchild");
	for (int i = 0; i < r.pages; i++)
		FAIL_STAMP(r.mem + i * PAGE, i, 1, i % 3 ? 0 : 1, "parent");
	return KSFT_PASS;
}

/* Partly reused, shared again, and so on. */
static int fork_again(const struct layout *l, const char *mode)
{
	struct region r;
	struct peer p;

	NEED(region_get(&r, l, FEW(l)));
	for (int round = 0; round < 4; round++) {
		int step = 1 + 2 * round;

		NEED(peer_fork(&p));
		FAIL_IF(!peer_quit(&p), "child");
		for (int i = round; i < r.pages; i += step * 4)
			stamp_page(r.mem + i * PAGE, i, 100 + round);
		NEED(peer_fork(&p));
		for (int i = round; i < r.pages; i += step * 4)
			FAIL_IF(!peer_stamped(&p, r.mem + i * PAGE, i, 1, 100 + round),
				"child, round %d", round);
		stamp_range(r.mem, 0, r.pages, round + 1);
		for (int i = 0; i < r.pages; i++) {
			bool odd = i >= round && !((i - round) % (step * 4));

			FAIL_IF(!peer_stamped(&p, r.mem + i * PAGE, i, 1,
					      odd ? 100 + round : round),
				"child sees later writes, round %d", round);
		}
		FAIL_IF(!peer_quit(&p), "child");
		FAIL_STAMP(r.mem, 0, r.pages, round + 1, "parent");
	}
	return KSFT_PASS;
}

/* --- dirty and accessed -------------------------------------------------- */

static int lazyfree_clean(const struct layout *l, const char *mode)
{
	struct region r;
	int k;

	NEED(region_get_unshared(&r, l, 1));
	k = odd_page(&r);
	SYS(madvise(r.mem, r.size, MADV_FREE));
	FAIL_IF(smaps_kb(r.mem, "LazyFree") != (long)KB(r.size),
		"only %ld KiB are lazily freed", smaps_kb(r.mem, "LazyFree"));
	stamp_page(r.mem + k * PAGE, k, 1);
	FAIL_IF(smaps_kb(r.mem, "LazyFree") != (long)KB(r.size - PAGE),
		"%ld KiB of %lu still lazily freed after one page was written",
		smaps_kb(r.mem, "LazyFree"), (unsigned long)KB(r.size));
	FAIL_STAMP(r.mem + k * PAGE, k, 1, 1, "written page");
	return KSFT_PASS;
}

/* All were written: a window must not take that back. */
static int lazyfree_dirty(const struct layout *l, const char *mode)
{
	struct region r;
	int k;

	NEED(region_get(&r, l, 1));
	k = odd_page(&r);
	SYS(madvise(r.mem, r.size, MADV_FREE));
	stamp_range(r.mem, 0, r.pages, 1);
	FAIL_IF(smaps_kb(r.mem, "LazyFree") != 0, "written, but %ld KiB are lazily freed",
		smaps_kb(r.mem, "LazyFree"));
	NEED(fork_and_exit());
	stamp_page(r.mem + k * PAGE, k, 2);
	FAIL_IF(smaps_kb(r.mem, "LazyFree") != 0,
		"%ld KiB are lazily freed, though written since",
		smaps_kb(r.mem, "LazyFree"));
	return KSFT_PASS;
}

/* Written through the window after MADV_FREE: has to survive reclaim. */
static int lazyfree_kept(const struct layout *l, const char *mode)
{
	struct region r;
	int k;

	NEED(need_swap());
	NEED(region_get_unshared(&r, l, 2));
	k = odd_page(&r);
	SYS(madvise(r.mem, r.size, MADV_FREE));
	/* The first faults, the second may not. Both count. */
	stamp_page(r.mem + k * PAGE, k, 1);
	stamp_page(r.mem + (k - 1) * PAGE, k - 1, 1);
	SYS(madvise(r.mem, r.size, MADV_PAGEOUT));
	FAIL_STAMP(r.mem + (k - 1) * PAGE, k - 1, 2, 1, "written after MADV_FREE");
	for (int i = 0; i < r.pages; i++)
		if (i != k && i != k - 1)
			FAIL_IF(!stamp_ok(r.mem + i * PAGE, i, 0) &&
				zero_bad(r.mem + i * PAGE, 1) >= 0, "page %d", i);
	stamp_range(r.mem, 0, r.pages, 2);
	FAIL_STAMP(r.mem, 0, r.pages, 2, "contents");
	return KSFT_PASS;
}

/* Made writable but not written, then freed: still goes without swap. */
static int lazyfree_dropped(const struct layout *l, const char *mode)
{
	struct region r;
	int k;

	NEED(region_get_unshared(&r, l, 2));
	k = odd_page(&r);
	stamp_page(r.mem + k * PAGE, k, 1);
	SYS(madvise(r.mem, r.size, MADV_FREE));
	FAIL_IF(smaps_kb(r.mem, "LazyFree") != (long)KB(r.size),
		"only %ld KiB are lazily freed", smaps_kb(r.mem, "LazyFree"));
	/* A write to the second folio says nothing of the first. */
	stamp_page(r.mem + (r.fpages + k) * PAGE, k, 1);
	SYS(madvise(r.mem, r.size, MADV_PAGEOUT));
	for (int i = 0; i < r.fpages; i++)
		FAIL_IF(pm_entry(r.mem + i * PAGE) & (PM_PRESENT | PM_SWAP),
			"page %d was kept", i);
	FAIL_IF(zero_bad(r.mem, r.fpages) >= 0, "dropped pages");
	FAIL_STAMP(r.mem + (r.fpages + k) * PAGE, k, 1, 1, "written page");
	return KSFT_PASS;
}

static int not_accessed(const struct layout *l, const char *mode)
{
	struct region r;
	int k;

	NEED(region_get_unshared(&r, l, 1));
	k = odd_page(&r);
	SYS(-!!file_write("/proc/self/clear_refs", "1"));
	FAIL_IF(smaps_kb(r.mem, "Referenced") != 0, "%ld KiB are accessed",
		smaps_kb(r.mem, "Referenced"));
	r.mem[k * PAGE + 100] = 1;
	FAIL_IF(smaps_kb(r.mem, "Referenced") != (long)KB(PAGE),
		"%ld KiB are accessed after one store",
		smaps_kb(r.mem, "Referenced"));
	return KSFT_PASS;
}

/* --- swap ---------------------------------------------------------------- */

static int swapped(const char *mem, int n)
{
	int swap = 0;

	for (int i = 0; i < n; i++)
		swap += !!(pm_entry(mem + i * PAGE) & PM_SWAP);
	return swap;
}

/* Out and in again by reading, so that swap may still hold a copy. */
static int swap_leftover(const struct layout *l, const char *mode)
{
	struct region r;
	struct peer p;

	NEED(need_swap());
	NEED(region_get(&r, l, 1));
	SYS(madvise(r.mem, r.size, MADV_PAGEOUT));
	FAIL_IF(!swapped(r.mem, r.pages), "nothing was swapped out");
	FAIL_STAMP(r.mem, 0, r.pages, 0, "read back");
	stamp_range(r.mem, 0, r.pages, 1);
	FAIL_STAMP(r.mem, 0, r.pages, 1, "written");

	/* A child reads it back and exits: shared, then exclusive. */
	SYS(madvise(r.mem, r.size, MADV_PAGEOUT));
	NEED(peer_fork(&p));
	FAIL_IF(!peer_stamped(&p, r.mem, 0, r.pages, 1), "child");
	FAIL_STAMP(r.mem, 0, r.pages, 1, "parent");
	FAIL_IF(!peer_quit(&p), "child");
	stamp_range(r.mem, 0, r.pages, 2);
	FAIL_STAMP(r.mem, 0, r.pages, 2, "written");

	/* Swapped out while shared; each writes its own. */
	NEED(peer_fork(&p));
	SYS(madvise(r.mem, r.size, MADV_PAGEOUT));
	FAIL_STAMP(r.mem, 0, r.pages / 2, 2, "read back");
	stamp_range(r.mem, 0, r.pages, 3);
	FAIL_IF(!peer_stamped(&p, r.mem, 0, r.pages, 2), "child sees the parent's writes");
	FAIL_IF(!peer_stamp(&p, r.mem, 0, r.pages, 4), "child");
	FAIL_STAMP(r.mem, 0, r.pages, 3, "parent sees the child's writes");
	return KSFT_PASS;
}

/* Some pages of the range are swap entries, some are back. */
static int swap_entries_amid(const struct layout *l, const char *mode)
{
	struct region r;

	NEED(need_swap());
	NEED(region_get_unshared(&r, l, 1));
	SYS(madvise(r.mem, r.size, MADV_PAGEOUT));
	for (int i = 0; i < r.pages; i += 5)
		FAIL_STAMP(r.mem + i * PAGE, i, 1, 0, "read back");
	for (int i = 0; i < r.pages; i += 10)
		stamp_page(r.mem + i * PAGE, i, 1);
	for (int i = 0; i < r.pages; i++)
		FAIL_STAMP(r.mem + i * PAGE, i, 1, !(i % 10), "contents");
	NEED(fork_and_exit());
	stamp_range(r.mem, 0, r.pages, 2);
	FAIL_STAMP(r.mem, 0, r.pages, 2, "contents");
	return KSFT_PASS;
}

/* Pages were copied away while the folio was shared: that was its first write. */
static int partly_copied(const struct layout *l, const char *mode)
{
	struct region r;
	struct peer p;
	long faults = 0;

	NEED(region_get(&r, l, 4));
	NEED(peer_fork(&p));
	for (int i = 3; i < r.pages; i += r.fpages)
		stamp_page(r.mem + i * PAGE, i, 1);
	FAIL_IF(!peer_stamped(&p, r.mem, 0, r.pages, 0), "child sees the parent's writes");
	FAIL_IF(!peer_quit(&p), "child");
	for (int i = 9; i < r.pages; i += r.fpages)
		faults += stamp_faults(r.mem + i * PAGE, i, 1, 1);
	FAIL_IF(faults != 4, "%ld faults on 4 folios", faults);
	for (int i = 0; i < r.pages; i += r.fpages)
		faults += stamp_faults(r.mem + i * PAGE, i, 16, 2);
	if (mode && strcmp(mode, "never"))
		FAIL_IF(faults != 4, "%ld faults, the pages around included", faults);
	for (int i = 0; i < r.pages; i += r.fpages)
		FAIL_STAMP(r.mem + i * PAGE, i, 16, 2, "contents");
	return KSFT_PASS;
}

/* --- memory pressure ------------------------------------------------------ */

/* Reuse needs no memory: it works where not a page more can be had. */
static int memcg_full(const struct layout *l, const char *mode)
{
	struct region r;
	long faults;

	NEED(cgroup_enter());
	NEED(region_get_unshared(&r, l, (4UL << 20) / l->folio));
	FAIL_IF(cgroup_limit(cgroup_current()), "memory.max");
	faults = stamp_faults(r.mem, 0, r.pages, 1);
	FAIL_STAMP(r.mem, 0, r.pages, 1, "contents");
	FAIL_IF(!reuse_faults_fit(mode, r.fpages, r.pages / r.fpages, faults), "faults");
	FAIL_IF(cgroup_kills() > 0, "out of memory");
	FAIL_IF(!is_folios(r.mem, r.size, r.folio), "folios fell apart");
	return KSFT_PASS;
}

/* Copies do: parent and child write until they have to be swapped out. */
static int memcg_swaps(const struct layout *l, const char *mode)
{
	struct region r;
	struct peer p;

	NEED(need_swap());
	NEED(cgroup_enter());
	NEED(region_get(&r, l, (4UL << 20) / l->folio));
	FAIL_IF(cgroup_limit(6L << 20), "memory.max");
	NEED(peer_fork(&p));
	stamp_range(r.mem, 0, r.pages, 1);
	FAIL_IF(!peer_stamped(&p, r.mem, 0, r.pages, 0), "child sees the parent's writes");
	FAIL_IF(!peer_stamp(&p, r.mem, 0, r.pages, 2), "child");
	FAIL_STAMP(r.mem, 0, r.pages, 1, "parent sees the child's writes");
	FAIL_IF(!peer_stamped(&p, r.mem, 0, r.pages, 2), "child");
	FAIL_IF(!peer_quit(&p), "child");
	NEED(fork_and_exit());
	stamp_range(r.mem, 0, r.pages, 3);
	FAIL_STAMP(r.mem, 0, r.pages, 3, "parent");
	return KSFT_PASS;
}

/* --- PMD ------------------------------------------------------------------ */

static int pmd_reused(const struct layout *l, const char *mode)
{
	struct region r;
	long faults;

	NEED(region_get_unshared(&r, l, 2));
	faults = stamp_faults(r.mem, 0, r.pages, 1);
	FAIL_STAMP(r.mem, 0, r.pages, 1, "contents");
	FAIL_IF(faults != 2, "%ld faults on 2 folios", faults);
	FAIL_IF(smaps_kb(r.mem, "AnonHugePages") != (long)KB(r.size),
		"no longer mapped by PMDs");
	return KSFT_PASS;
}

static int pmd_split_by_mprotect(const struct layout *l, const char *mode)
{
	struct region r;
	long faults;

	NEED(region_get_unshared(&r, l, 1));
	SYS(mprotect(r.mem + 77 * PAGE, PAGE, PROT_READ));
	faults = stamp_faults(r.mem, 0, 77, 1);
	faults += stamp_faults(r.mem + 78 * PAGE, 78, r.pages - 78, 1);
	FAIL_IF(store_signal(r.mem + 77 * PAGE) != SIGSEGV, "read-only page was written");
	FAIL_STAMP(r.mem + 77 * PAGE, 77, 1, 0, "read-only page");
	FAIL_IF(around_bad(r.mem, r.pages, 77, 1, 1) >= 0, "contents");
	if (mode && !strcmp(mode, "whole"))
		FAIL_IF(faults != 2, "%ld faults in 2 VMAs", faults);
	return KSFT_PASS;
}

static const struct test_case cases[] = {
	{ "Parent writes first, then the child: each keeps its own",
	  parent_first, ON_SMALL | ON_EVERY | ON_PMD },
	{ "Child writes first, then the parent: each keeps its own",
	  child_first, ON_SMALL | ON_EVERY | ON_PMD },
	{ "Parent and child write every second page in turn",
	  alternating, ON_LARGE | ON_PMD },
	{ "One byte a page leaves all others as they were",
	  byte_per_page, ON_EVERY | ON_PMD },
	{ "Survivor of fork is the child",
	  survivor_is_child, ON_EVERY | ON_PMD },
	{ "Second child still has the folio",
	  second_child, ON_LARGE | ON_PMD },
	{ "Last of four children still has the folio",
	  many_children, ON_LARGE | ON_PMD },
	{ "Grandchild in the place of a child that has written",
	  grandchild, ON_LARGE | ON_PMD },
	{ "Grandchild still has the folio when the child is gone",
	  grandchild_keeps, ON_64K_UP | ON_PMD },
	{ "Partly reused, then shared again, four times over",
	  fork_again, ON_LARGE | ON_PMD },
	{ "Rewriting from front to back takes the mode's number of faults",
	  sequential_faults, ON_SMALL | ON_EVERY },
	{ "Rewriting from back to front takes few faults",
	  backward_faults, ON_EVERY },
	{ "Rewriting in random order takes few faults",
	  random_faults, ON_EVERY },
	{ "One store makes its window writable and no other folio",
	  window_of_one_store, ON_EVERY },
	{ "Counters of the folio's size count faults and pages",
	  counters, ON_LARGE },
	{ "Tracepoint tells of a fault where it was and what it did",
	  tracepoint, ON_LARGE },
	{ "Exclusive pages are reused, never copied",
	  exclusive_not_copied, ON_EVERY | ON_PMD },
	{ "Only the page that was written becomes dirty",
	  lazyfree_clean, ON_LARGE },
	{ "Pages that were dirty stay dirty",
	  lazyfree_dirty, ON_LARGE },
	{ "Pages written after MADV_FREE survive reclaim",
	  lazyfree_kept, ON_LARGE | ON_PMD },
	{ "Pages made writable and then freed by MADV_FREE can be dropped",
	  lazyfree_dropped, ON_LARGE },
	{ "Only the page that was written becomes accessed",
	  not_accessed, ON_LARGE },
	{ "Swapped out and read back before it is written",
	  swap_leftover, ON_LARGE | ON_PMD },
	{ "Swap entries amid the folio",
	  swap_entries_amid, ON_LARGE | ON_PMD },
	{ "Pages copied away while it was shared: the first fault takes more",
	  partly_copied, ON_64K_UP },
	{ "Memory cgroup at its limit: what is exclusive is reused",
	  memcg_full, ON_64K_UP },
	{ "Memory cgroup beyond its limit: copies, with swap",
	  memcg_swaps, ON_64K_UP | ON_PMD },
	{ "Huge page stays mapped by a PMD when it is reused",
	  pmd_reused, ON_PMD },
	{ "Huge page split by mprotect of one page after fork",
	  pmd_split_by_mprotect, ON_PMD },
};

int main(void)
{
	run_cases(cases, ARRAY_SIZE(cases), "wp_reuse");
}

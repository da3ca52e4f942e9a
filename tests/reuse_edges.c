// SPDX-License-Identifier: GPL-2.0
/*
 * Write faults on a large folio that is exclusive again, where the folio has
 * an edge: holes and pages of others in it, VMAs without write permission
 * beside it or around it, parts moved elsewhere, pages shared and not shared.
 * Nothing but the program's own pages may become writable. Holds on any kernel.
 */
#include "common.h"

#include <sys/ptrace.h>

/* --- holes, and pages that are not of the folio ---------------------------- */

static int hole_dontneed(const struct layout *l, const char *mode)
{
	struct region r;
	int k;

	NEED(region_get_unshared(&r, l, 1));
	k = odd_page(&r);
	SYS(madvise(r.mem + k * PAGE, PAGE, MADV_DONTNEED));
	stamp_around(r.mem, r.pages, k, 1, 1);
	FAIL_IF(pm_entry(r.mem + k * PAGE) & PM_PRESENT, "hole was filled");
	FAIL_IF(zero_bad(r.mem + k * PAGE, 1) >= 0, "hole is not zero");
	FAIL_IF(around_bad(r.mem, r.pages, k, 1, 1) >= 0, "contents");
	stamp_range(r.mem, 0, r.pages, 2);
	FAIL_STAMP(r.mem, 0, r.pages, 2, "contents");
	return KSFT_PASS;
}

static int hole_zero_page(const struct layout *l, const char *mode)
{
	struct region r;
	char *fresh;
	int k;

	NEED(region_get_unshared(&r, l, 1));
	k = odd_page(&r);
	SYS(madvise(r.mem + k * PAGE, PAGE, MADV_DONTNEED));
	FAIL_IF(zero_bad(r.mem + k * PAGE, 1) >= 0, "hole is not zero");
	stamp_around(r.mem, r.pages, k, 1, 1);
	FAIL_IF(zero_bad(r.mem + k * PAGE, 1) >= 0, "hole is not zero");
	FAIL_IF(store_faults(r.mem + k * PAGE + 8, ~0UL) != 1,
		"the zero page was mapped writable");
	fresh = mmap_anon(NULL, PAGE, PROT_READ);
	FAIL_IF(!fresh, "mmap");
	FAIL_IF(zero_bad(fresh, 1) >= 0, "the zero page was written to");
	FAIL_IF(around_bad(r.mem, r.pages, k, 1, 1) >= 0, "contents");
	return KSFT_PASS;
}

static int hole_munmap(const struct layout *l, const char *mode)
{
	struct region r;
	int k;

	NEED(region_get_unshared(&r, l, 1));
	k = odd_page(&r);
	SYS(munmap(r.mem + k * PAGE, PAGE));
	stamp_around(r.mem, r.pages, k, 1, 1);
	FAIL_IF(load_signal(r.mem + k * PAGE) != SIGSEGV, "hole can be read");
	FAIL_IF(around_bad(r.mem, r.pages, k, 1, 1) >= 0, "contents");
	return KSFT_PASS;
}

static int hole_guard(const struct layout *l, const char *mode)
{
	struct region r;
	int k;

	NEED(region_get_unshared(&r, l, 1));
	k = odd_page(&r);
	if (madvise(r.mem + k * PAGE, PAGE, MADV_GUARD_INSTALL))
		return skip("kernel has no guard regions: %s", strerror(errno));
	stamp_around(r.mem, r.pages, k, 1, 1);
	FAIL_IF(load_signal(r.mem + k * PAGE) != SIGSEGV, "guard page can be read");
	SYS(madvise(r.mem + k * PAGE, PAGE, MADV_GUARD_REMOVE));
	FAIL_IF(zero_bad(r.mem + k * PAGE, 1) >= 0, "not zero behind the guard");
	FAIL_IF(around_bad(r.mem, r.pages, k, 1, 1) >= 0, "contents");
	return KSFT_PASS;
}

/* A read-only mapping of something else in the middle of the folio's range. */
static int hole_readonly(const struct layout *l, const char *mode)
{
	struct region r;
	char *p;
	int k;

	NEED(region_get(&r, l, 1));
	k = odd_page(&r);
	p = mmap_anon(r.mem + k * PAGE, PAGE, PROT_READ | PROT_WRITE);
	FAIL_IF(!p, "mmap");
	stamp_page(p, 4000, 9);
	SYS(mprotect(p, PAGE, PROT_READ));
	NEED(fork_and_exit());
	stamp_around(r.mem, r.pages, k, 1, 1);
	FAIL_IF(store_signal(p) != SIGSEGV, "read-only mapping can be written");
	FAIL_STAMP(p, 4000, 1, 9, "read-only mapping");
	FAIL_IF(around_bad(r.mem, r.pages, k, 1, 1) >= 0, "contents");
	return KSFT_PASS;
}

/*
 * In the same VMA and amid an exclusive folio, a page that does not belong to
 * it and is shared with a child. The folio is known to be exclusive; this page
 * is not.
 */
static int foreign_shared_page(const struct layout *l, const char *mode)
{
	char *start, *end;
	struct region r;
	struct peer p;
	int k;

	NEED(region_get(&r, l, 1));
	k = odd_page(&r);
	NEED(peer_fork(&p));
	SYS(madvise(r.mem + k * PAGE, PAGE, MADV_DONTNEED));
	stamp_page(r.mem + k * PAGE, k, 5);
	FAIL_IF(!peer_quit(&p), "first child");

	/* Only the page goes to the second child. */
	SYS(madvise(r.mem, k * PAGE, MADV_DONTFORK));
	SYS(madvise(r.mem + (k + 1) * PAGE, r.size - (k + 1) * PAGE, MADV_DONTFORK));
	NEED(peer_fork(&p));
	SYS(madvise(r.mem, r.size, MADV_DOFORK));
	FAIL_IF(!vma_range(r.mem, &start, &end) || start > r.mem ||
		end < r.mem + r.size, "VMAs did not merge again");

	stamp_around(r.mem, r.pages, k, 1, 1);
	FAIL_IF(store_faults(r.mem + k * PAGE, 1) == 0, "page shared with a child was writable");
	stamp_page(r.mem + k * PAGE, k, 6);
	FAIL_IF(!peer_stamped(&p, r.mem + k * PAGE, k, 1, 5), "child sees the parent's write");
	FAIL_IF(!peer_stamp(&p, r.mem + k * PAGE, k, 1, 8), "child");
	FAIL_STAMP(r.mem + k * PAGE, k, 1, 6, "parent sees the child's write");
	FAIL_IF(around_bad(r.mem, r.pages, k, 1, 1) >= 0, "contents");
	return KSFT_PASS;
}

/* The same with a page copied because a child had it: PTEs of two folios. */
static int copied_pages_amid(const struct layout *l, const char *mode)
{
	struct region r;
	struct peer p;

	NEED(region_get(&r, l, FEW(l)));
	NEED(peer_fork(&p));
	for (int i = 3; i < r.pages; i += 7)
		stamp_page(r.mem + i * PAGE, i, 1);
	FAIL_IF(!peer_quit(&p), "child");
	NEED(peer_fork(&p));
	FAIL_IF(!peer_munmap(&p, r.mem, PAGE), "child");
	stamp_range(r.mem, 0, r.pages, 2);
	for (int i = 1; i < r.pages; i++)
		FAIL_IF(!peer_stamped(&p, r.mem + i * PAGE, i, 1, i % 7 == 3),
			"child sees the parent's writes");
	FAIL_IF(!peer_quit(&p), "child");
	NEED(fork_and_exit());
	stamp_range(r.mem, 0, r.pages, 3);
	FAIL_STAMP(r.mem, 0, r.pages, 3, "parent");
	return KSFT_PASS;
}

/*
 * Two folios that are next to each other in memory as well as in the VMA: by
 * their page frame numbers, the second one's pages go on where the first one's
 * end. One is exclusive and written, the other is shared with a child.
 */
static int next_in_memory(const struct layout *l, bool second)
{
	static uint64_t pfn[64];
	int n = l->folio >= 1 << 20 ? 8 : 64, i;
	char *mine, *theirs, *start, *end;
	struct region r;
	struct peer p;

	/* What was freed last is handed out first: keep it, and try again. */
	for (int try = 0; try < 4; try++) {
		NEED(region_get(&r, l, n));
		for (i = 0; i < n; i++)
			pfn[i] = pm_pfn(r.mem + i * r.folio);
		for (i = 0; i + 1 < n; i++)
			if (pfn[i + 1] == pfn[i] + r.fpages)
				break;
		if (i + 1 < n)
			break;
	}
	if (i + 1 == n)
		return skip("no two folios next to each other in memory");
	NEED(fork_and_exit());
	mine = r.mem + (i + second) * r.folio;
	theirs = r.mem + (i + !second) * r.folio;
	SYS(madvise(r.mem, r.size, MADV_DONTFORK));
	SYS(madvise(theirs, r.folio, MADV_DOFORK));
	NEED(peer_fork(&p));
	SYS(madvise(r.mem, r.size, MADV_DOFORK));
	FAIL_IF(!vma_range(r.mem, &start, &end) || start > r.mem ||
		end < r.mem + r.size, "VMAs did not merge again");

	/* At the border first, then all of it. */
	i = (mine - r.mem) / PAGE;
	if (second)
		stamp_page(mine, i, 1);
	else
		stamp_page(mine + r.folio - PAGE, i + r.fpages - 1, 1);
	stamp_range(mine, i, r.fpages, 1);
	i = (theirs - r.mem) / PAGE;
	if (second)
		FAIL_IF(!store_faults(theirs + r.folio - PAGE, 1), "page shared with a child was writable");
	else
		FAIL_IF(!store_faults(theirs, 1), "page shared with a child was writable");
	stamp_range(theirs, i, r.fpages, 2);
	FAIL_IF(!peer_stamped(&p, theirs, i, r.fpages, 0), "child sees the parent's writes");
	FAIL_STAMP(theirs, i, r.fpages, 2, "parent");
	i = (mine - r.mem) / PAGE;
	FAIL_STAMP(mine, i, r.fpages, 1, "parent");
	return KSFT_PASS;
}

static int next_folio(const struct layout *l, const char *mode)
{
	return next_in_memory(l, false);
}

static int previous_folio(const struct layout *l, const char *mode)
{
	return next_in_memory(l, true);
}

/* Sample a range at its borders and at some places between. */
static int store_signals(char *mem, int n, int expect)
{
	for (int i = 0; i < n; i += i < 17 || i > n - 17 ? 1 : 13) {
		int sig = store_signal(mem + i * PAGE);

		if (sig != expect) {
			ksft_print_msg("page %d: write raised signal %d, expected %d\n",
				       i, sig, expect);
			return i;
		}
	}
	return -1;
}

/* Part [k, k+n) of a folio is read-only; the rest is written. */
static int readonly_part(const struct layout *l, int k, int n, bool before,
			 int prot)
{
	struct region r;

	NEED(region_get(&r, l, 1));
	if (before)
		SYS(mprotect(r.mem + k * PAGE, n * PAGE, prot));
	NEED(fork_and_exit());
	if (!before)
		SYS(mprotect(r.mem + k * PAGE, n * PAGE, prot));
	stamp_around(r.mem, r.pages, k, n, 1);
	FAIL_IF(store_signals(r.mem + k * PAGE, n, SIGSEGV) >= 0,
		"part without permission was written");
	if (prot == PROT_READ)
		FAIL_STAMP(r.mem + k * PAGE, k, n, 0, "read-only part");
	else
		FAIL_IF(load_signal(r.mem + k * PAGE) != SIGSEGV, "PROT_NONE was read");
	FAIL_IF(around_bad(r.mem, r.pages, k, n, 1) >= 0, "written part");

	SYS(mprotect(r.mem + k * PAGE, n * PAGE, PROT_READ | PROT_WRITE));
	FAIL_STAMP(r.mem + k * PAGE, k, n, 0, "part writable again");
	stamp_range(r.mem, 0, r.pages, 2);
	FAIL_STAMP(r.mem, 0, r.pages, 2, "contents");
	return KSFT_PASS;
}

static int readonly_tail(const struct layout *l, const char *mode)
{
	int n = l->folio / PAGE, k = n / 2 + 1;

	NEED(readonly_part(l, k, n - k, false, PROT_READ));
	return readonly_part(l, k, n - k, true, PROT_READ);
}

static int readonly_head(const struct layout *l, const char *mode)
{
	int n = l->folio / PAGE, k = n / 2 - 1;

	NEED(readonly_part(l, 0, k, false, PROT_READ));
	return readonly_part(l, 0, k, true, PROT_READ);
}

static int readonly_middle(const struct layout *l, const char *mode)
{
	int n = l->folio / PAGE;

	NEED(readonly_part(l, n / 2 - 1, 2, false, PROT_READ));
	return readonly_part(l, n / 2 - 1, 2, true, PROT_READ);
}

static int protnone_middle(const struct layout *l, const char *mode)
{
	int n = l->folio / PAGE;

	NEED(readonly_part(l, n / 2 - 1, 2, false, PROT_NONE));
	NEED(readonly_part(l, n / 2, n / 2, false, PROT_NONE));
	return readonly_part(l, n / 2 - 1, 2, true, PROT_NONE);
}

static int mprotect_roundtrip(const struct layout *l, const char *mode)
{
	struct region r;
	long faults;

	NEED(region_get_unshared(&r, l, FEW(l)));
	SYS(mprotect(r.mem, r.size, PROT_READ));
	FAIL_IF(store_signals(r.mem, r.pages, SIGSEGV) >= 0, "read-only memory was written");
	SYS(mprotect(r.mem, r.size, PROT_READ | PROT_WRITE));
	faults = stamp_faults(r.mem, 0, r.pages, 1);
	FAIL_STAMP(r.mem, 0, r.pages, 1, "contents");
	if (!l->pmd)
		FAIL_IF(!reuse_faults_fit(mode, r.fpages, FEW(l), faults), "faults");
	/* Now exclusive: mprotect gives the permission back by itself. */
	SYS(mprotect(r.mem, r.size, PROT_READ));
	FAIL_IF(store_signals(r.mem, r.pages, SIGSEGV) >= 0, "read-only memory was written");
	SYS(mprotect(r.mem, r.size, PROT_READ | PROT_WRITE));
	stamp_range(r.mem, 0, r.pages, 2);
	FAIL_STAMP(r.mem, 0, r.pages, 2, "contents");
	return KSFT_PASS;
}

/* --- moved and cut ------------------------------------------------------ */

/*
 * Move the folio's pages [k, k+n) to an address that is not aligned to
 * anything but a page and, where they are enough, has a border of two page
 * tables in it, with read-only pages on both sides.
 */
static int moved_part(const struct layout *l, const char *mode, int k, int n)
{
	static uint64_t pfn[512];
	char *area = reserve(2 * MB2), *to, *ro[2];
	struct region r;
	long faults;

	FAIL_IF(!area, "mmap");
	NEED(region_get(&r, l, 1));
	for (int i = 0; i < r.pages; i++)
		pfn[i] = pm_pfn(r.mem + i * PAGE);
	to = area + MB2 - (n / 2 | 1) * PAGE;
	ro[0] = to - PAGE;
	ro[1] = to + n * PAGE;
	for (int i = 0; i < 2; i++) {
		FAIL_IF(!mmap_anon(ro[i], PAGE, PROT_READ | PROT_WRITE), "mmap");
		stamp_page(ro[i], 3000 + i, 9);
		SYS(mprotect(ro[i], PAGE, PROT_READ));
	}
	FAIL_IF(!move(r.mem + k * PAGE, n * PAGE, to), "mremap: %s", strerror(errno));
	NEED(fork_and_exit());

	faults = stamp_faults(to, k, n, 1);
	if (mode && !strcmp(mode, "whole"))
		FAIL_IF(faults != (n > 1 ? 2 : 1), "%ld faults on a piece in two page tables", faults);
	else if (!mode || !strcmp(mode, "never"))
		FAIL_IF(faults != n, "%ld faults on %d pages", faults, n);
	FAIL_IF(store_signal(ro[0]) != SIGSEGV, "read-only page in front was written");
	FAIL_IF(store_signal(ro[1]) != SIGSEGV, "read-only page behind was written");
	for (int i = 0; i < 2; i++)
		FAIL_STAMP(ro[i], 3000 + i, 1, 9, "read-only page");
	FAIL_STAMP(to, k, n, 1, "moved part");
	FAIL_IF(around_bad(r.mem, r.pages, k, n, 0) >= 0, "part left behind");
	stamp_around(r.mem, r.pages, k, n, 2);
	FAIL_IF(around_bad(r.mem, r.pages, k, n, 2) >= 0, "part left behind");
	FAIL_STAMP(to, k, n, 1, "moved part");
	for (int i = 0; i < r.pages; i++) {
		char *p = i >= k && i < k + n ? to + (i - k) * PAGE : r.mem + i * PAGE;

		FAIL_IF(pm_pfn(p) != pfn[i], "page %d was copied", i);
	}
	FAIL_IF(k > 0 && load_signal(r.mem + k * PAGE) != SIGSEGV, "left something behind");
	return KSFT_PASS;
}

static int moved_tail(const struct layout *l, const char *mode)
{
	int n = l->folio / PAGE;

	return moved_part(l, mode, n / 2, n / 2);
}

static int moved_head(const struct layout *l, const char *mode)
{
	int n = l->folio / PAGE;

	return moved_part(l, mode, 0, n / 2 + 1);
}

static int moved_middle(const struct layout *l, const char *mode)
{
	int n = l->folio / PAGE;

	return moved_part(l, mode, n / 4 + 1, n / 2);
}

static int moved_whole(const struct layout *l, const char *mode)
{
	return moved_part(l, mode, 0, l->folio / PAGE);
}

/*
 * Many folios, each across the border of two page tables. Page tables that are
 * made one after the other often lie next to each other in memory: whoever
 * goes past the end of one, or begins in front of it, then finds there the
 * PTEs of the folio's other half, which are under another lock.
 */
static int two_tables(const struct layout *l, const char *mode)
{
	int n = (16UL << 20) / l->folio, half = l->folio / PAGE / 2;
	struct region r;
	char *area, *to;

	if (n > 256)
		n = 256;
	area = reserve((n + 1) * MB2);
	FAIL_IF(!area, "mmap");
	NEED(region_get(&r, l, n));
	for (int i = 0; i < n; i++)
		FAIL_IF(!move(r.mem + i * r.folio, r.folio,
			      area + (i + 1) * MB2 - half * PAGE), "mremap");
	for (int round = 0; round < 2; round++) {
		NEED(fork_and_exit());
		for (int i = 0; i < n; i++) {
			char *end = area + (i + 1) * MB2 - PAGE, *begin = end + PAGE;
			bool down = (i + round) % 2;

			*(down ? begin : end) = 1;
			FAIL_IF(!store_faults(down ? end : begin, 1),
				"a write made a page in another page table writable");
		}
	}
	for (int i = 0; i < n; i++)
		stamp_range(area + (i + 1) * MB2 - half * PAGE, i * r.fpages, r.fpages, 1);
	for (int i = 0; i < n; i++) {
		to = area + (i + 1) * MB2 - half * PAGE;
		FAIL_STAMP(to, i * r.fpages, r.fpages, 1, "contents");
	}
	return KSFT_PASS;
}

/* Two pages change places: both belong to the folio, at the wrong address. */
static int swapped_order(const struct layout *l, const char *mode)
{
	struct region r;
	char *tmp, *a, *b;
	int i, j;

	NEED(region_get(&r, l, 1));
	i = odd_page(&r) - 1;
	j = odd_page(&r);
	a = r.mem + i * PAGE;
	b = r.mem + j * PAGE;
	tmp = reserve(PAGE);
	FAIL_IF(!tmp || !move(a, PAGE, tmp) || !move(b, PAGE, a) ||
		!move(tmp, PAGE, b), "mremap: %s", strerror(errno));
	NEED(fork_and_exit());
	FAIL_STAMP(a, j, 1, 0, "moved page");
	FAIL_STAMP(b, i, 1, 0, "moved page");
	stamp_around(r.mem, r.pages, i, 2, 1);
	FAIL_STAMP(a, j, 1, 0, "moved page");
	FAIL_STAMP(b, i, 1, 0, "moved page");
	stamp_page(a, j, 2);
	FAIL_STAMP(b, i, 1, 0, "moved page");
	stamp_page(b, i, 3);
	FAIL_STAMP(a, j, 1, 2, "moved page");
	FAIL_STAMP(b, i, 1, 3, "moved page");
	FAIL_IF(around_bad(r.mem, r.pages, i, 2, 1) >= 0, "contents");
	return KSFT_PASS;
}

/*
 * Two neighbours in one VMA whose pages are of one folio, but with a gap
 * between them that has been closed: mremap moved the tail down over it.
 */
static int closed_gap(const struct layout *l, const char *mode)
{
	struct region r;
	struct peer p;
	char *tmp;
	int k, n;

	NEED(region_get(&r, l, 1));
	k = r.pages / 2;
	n = r.pages - k;
	tmp = reserve(r.size);
	FAIL_IF(!tmp || !move(r.mem + k * PAGE, n * PAGE, tmp) ||
		!move(tmp, n * PAGE, r.mem + (k - 1) * PAGE),
		"mremap: %s", strerror(errno));
	NEED(fork_and_exit());
	stamp_page(r.mem + (k - 2) * PAGE, k - 2, 1);
	stamp_page(r.mem + (k - 1) * PAGE, k, 1);
	FAIL_STAMP(r.mem, 0, k - 2, 0, "front");
	FAIL_STAMP(r.mem + (k - 1) * PAGE, k, 1, 1, "moved");
	FAIL_STAMP(r.mem + k * PAGE, k + 1, n - 1, 0, "moved");
	NEED(peer_fork(&p));
	stamp_range(r.mem, 0, k - 1, 2);
	stamp_range(r.mem + (k - 1) * PAGE, k, n, 2);
	FAIL_IF(!peer_stamped(&p, r.mem, 0, k - 2, 0), "child");
	FAIL_IF(!peer_stamped(&p, r.mem + k * PAGE, k + 1, n - 1, 0), "child");
	FAIL_STAMP(r.mem, 0, k - 1, 2, "front");
	FAIL_STAMP(r.mem + (k - 1) * PAGE, k, n, 2, "moved");
	return KSFT_PASS;
}

static int partially_mapped(const struct layout *l, const char *mode)
{
	struct region r;
	long faults;
	int n;

	/* Only the tail is left, then a child has had it. */
	NEED(region_get(&r, l, 1));
	n = r.pages / 2 + 1;
	SYS(munmap(r.mem, (r.pages - n) * PAGE));
	NEED(fork_and_exit());
	faults = stamp_faults(r.mem + (r.pages - n) * PAGE, r.pages - n, n, 1);
	FAIL_STAMP(r.mem + (r.pages - n) * PAGE, r.pages - n, n, 1, "tail");
	if (mode && !strcmp(mode, "whole"))
		FAIL_IF(faults != 1, "%ld faults", faults);

	/* Only the head, after a child has had all of it. */
	NEED(region_get_unshared(&r, l, 1));
	SYS(munmap(r.mem + n * PAGE, (r.pages - n) * PAGE));
	faults = stamp_faults(r.mem, 0, n, 1);
	FAIL_STAMP(r.mem, 0, n, 1, "head");
	if (mode && !strcmp(mode, "whole"))
		FAIL_IF(faults != 1, "%ld faults", faults);

	/* A single page. */
	NEED(region_get_unshared(&r, l, 1));
	SYS(munmap(r.mem + PAGE, r.size - PAGE));
	stamp_page(r.mem, 0, 1);
	FAIL_STAMP(r.mem, 0, 1, 1, "single page");
	return KSFT_PASS;
}

/* The parent has given pages up that the child still has. */
static int child_keeps_part(const struct layout *l, const char *mode)
{
	struct region r;
	struct peer p;
	int k;

	NEED(region_get(&r, l, 1));
	k = odd_page(&r);
	NEED(peer_fork(&p));
	SYS(madvise(r.mem + k * PAGE, PAGE, MADV_DONTNEED));
	FAIL_IF(!peer_munmap(&p, r.mem, k * PAGE), "child");
	stamp_around(r.mem, r.pages, k, 1, 1);
	FAIL_IF(!peer_stamped(&p, r.mem + k * PAGE, k, r.pages - k, 0), "child sees the parent's writes");
	FAIL_IF(zero_bad(r.mem + k * PAGE, 1) >= 0, "hole");
	stamp_page(r.mem + k * PAGE, k, 1);
	FAIL_IF(!peer_stamp(&p, r.mem + k * PAGE, k, r.pages - k, 2), "child");
	FAIL_STAMP(r.mem, 0, r.pages, 1, "parent sees the child's writes");
	FAIL_IF(!peer_stamped(&p, r.mem + k * PAGE, k, r.pages - k, 2), "child");
	return KSFT_PASS;
}

/* --- exclusive and not in one folio -------------------------------------- */

/*
 * Pages that fork did not share stay exclusive and writable amid those it did.
 * A write to one of them must not be copied, and says nothing of the others.
 */
static int mixture_dontfork(const struct layout *l, const char *mode)
{
	struct region r;
	uint64_t pfn[2];
	struct peer p;
	int k;

	NEED(region_get(&r, l, 1));
	k = odd_page(&r);
	pfn[0] = pm_pfn(r.mem + k * PAGE);
	pfn[1] = pm_pfn(r.mem + (k + 1) * PAGE);
	SYS(madvise(r.mem + k * PAGE, 2 * PAGE, MADV_DONTFORK));
	NEED(peer_fork(&p));
	SYS(madvise(r.mem + k * PAGE, 2 * PAGE, MADV_DOFORK));
	stamp_page(r.mem + k * PAGE, k, 1);
	stamp_around(r.mem, r.pages, k, 2, 2);
	FAIL_IF(store_faults(r.mem + (k + 1) * PAGE, 1), "exclusive page lost its permission");
	stamp_page(r.mem + (k + 1) * PAGE, k + 1, 1);
	FAIL_IF(!peer_stamped(&p, r.mem, 0, k, 0), "child sees the parent's writes");
	FAIL_IF(!peer_stamped(&p, r.mem + (k + 2) * PAGE, k + 2, r.pages - k - 2, 0),
		"child sees the parent's writes");
	FAIL_IF(pm_pfn(r.mem + k * PAGE) != pfn[0] ||
		pm_pfn(r.mem + (k + 1) * PAGE) != pfn[1], "exclusive page was copied");
	FAIL_STAMP(r.mem + k * PAGE, k, 2, 1, "exclusive pages");
	FAIL_IF(around_bad(r.mem, r.pages, k, 2, 2) >= 0, "contents");
	return KSFT_PASS;
}

/* One half goes to the child, the other not: "partially shared". */
static int partially_shared(const struct layout *l, const char *mode)
{
	struct region r;
	struct peer p;
	int n;

	NEED(region_get(&r, l, 1));
	n = r.pages / 2;
	SYS(madvise(r.mem + n * PAGE, n * PAGE, MADV_DONTFORK));
	NEED(peer_fork(&p));
	SYS(madvise(r.mem + n * PAGE, n * PAGE, MADV_DOFORK));
	stamp_page(r.mem + n * PAGE, n, 1);
	stamp_page(r.mem + (n - 1) * PAGE, n - 1, 1);
	stamp_range(r.mem, 0, r.pages, 1);
	FAIL_IF(!peer_stamped(&p, r.mem, 0, n, 0), "child sees the parent's writes");
	FAIL_IF(!peer_quit(&p), "child");
	FAIL_STAMP(r.mem, 0, r.pages, 1, "parent");

	NEED(fork_and_exit());
	stamp_range(r.mem, 0, r.pages, 2);
	FAIL_STAMP(r.mem, 0, r.pages, 2, "parent");
	return KSFT_PASS;
}

static int wipe_on_fork(const struct layout *l, const char *mode)
{
	char *start, *end;
	struct region r;
	struct peer p;
	int n;

	NEED(region_get(&r, l, 1));
	n = r.pages / 2;
	SYS(madvise(r.mem + n * PAGE, n * PAGE, MADV_WIPEONFORK));
	NEED(peer_fork(&p));
	stamp_page(r.mem + (n - 1) * PAGE, n - 1, 1);
	FAIL_IF(!peer_stamped(&p, r.mem, 0, n, 0), "child sees the parent's writes");
	FAIL_IF(!peer_zero(&p, r.mem + n * PAGE, n), "child has what was to be wiped");
	FAIL_IF(!peer_quit(&p), "child");
	stamp_range(r.mem, 0, r.pages, 2);
	FAIL_STAMP(r.mem, 0, r.pages, 2, "parent");
	FAIL_IF(!vma_range(r.mem, &start, &end) || end != r.mem + n * PAGE, "VMAs");
	return KSFT_PASS;
}

/* --- forced writes ------------------------------------------------------- */

struct poke {
	char *addr;
	uint64_t val;
};

/* A debugger, forked before there is anything to share with it. */
static void __attribute__((noreturn)) debugger(int in, int out, bool file)
{
	pid_t pid = getppid();
	struct poke poke;
	char path[64];
	int fd;
	char ok;

	snprintf(path, sizeof(path), "/proc/%d/mem", pid);
	fd = open(path, O_RDWR | O_CLOEXEC);

	while (read(in, &poke, sizeof(poke)) == sizeof(poke)) {
		ok = 0;
		if (!ptrace(PTRACE_ATTACH, pid, NULL, NULL) &&
		    waitpid(pid, NULL, 0) == pid) {
			if (file)
				ok = pwrite(fd, &poke.val, 8, (off_t)poke.addr) == 8;
			else
				ok = !ptrace(PTRACE_POKEDATA, pid, poke.addr, poke.val);
			ptrace(PTRACE_DETACH, pid, NULL, NULL);
		}
		if (write(out, &ok, 1) != 1)
			break;
	}
	_exit(0);
}

/* All of the region is read-only; a debugger writes to some pages of it. */
static int forced_write(const struct layout *l, bool file)
{
	int to[2], from[2], k[3];
	struct region r;
	pid_t pid;
	char ok;

	SYS(pipe(to));
	SYS(pipe(from));
	pid = fork_child();
	FAIL_IF(pid < 0, "fork");
	if (!pid) {
		close(to[1]);
		debugger(to[0], from[1], file);
	}
	NEED(region_get_unshared(&r, l, 2));
	SYS(mprotect(r.mem, r.size, PROT_READ));
	k[0] = odd_page(&r);
	k[1] = r.fpages - 1;
	k[2] = r.fpages;
	for (int i = 0; i < 3; i++) {
		struct poke poke = { r.mem + k[i] * PAGE + 2048, 0x1234567 + i };
		ssize_t n;

		SYS(write(to[1], &poke, sizeof(poke)));
		do
			n = read(from[0], &ok, 1);
		while (n < 0 && errno == EINTR);
		FAIL_IF(n != 1 || !ok, "debugger could not write");
	}
	FAIL_IF(store_signals(r.mem, r.pages, SIGSEGV) >= 0,
		"read-only memory was written by the program");
	for (int i = 0; i < 3; i++) {
		uint64_t *p = (uint64_t *)(r.mem + k[i] * PAGE + 2048);

		FAIL_IF(*p != 0x1234567ULL + i, "debugger's write was lost");
	}
	SYS(mprotect(r.mem, r.size, PROT_READ | PROT_WRITE));
	for (int i = 0; i < r.pages; i++)
		if (i != k[0] && i != k[1] && i != k[2])
			FAIL_STAMP(r.mem + i * PAGE, i, 1, 0, "contents");
	stamp_range(r.mem, 0, r.pages, 1);
	FAIL_STAMP(r.mem, 0, r.pages, 1, "contents");
	return KSFT_PASS;
}

static int forced_poke(const struct layout *l, const char *mode)
{
	return forced_write(l, false);
}

static int forced_file(const struct layout *l, const char *mode)
{
	return forced_write(l, true);
}

static int forced_proc_mem(const struct layout *l, const char *mode)
{
	uint64_t val = 0xdecafbad;
	struct region r;
	int fd, k;

	NEED(region_get_unshared(&r, l, 1));
	SYS(mprotect(r.mem, r.size, PROT_READ));
	k = odd_page(&r);
	fd = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
	SYS(fd);
	if (pwrite(fd, &val, 8, (uintptr_t)(r.mem + k * PAGE + 2048)) != 8)
		return skip("kernel does not force writes through /proc/self/mem (proc_mem.force_override)");
	FAIL_IF(store_signals(r.mem, r.pages, SIGSEGV) >= 0,
		"read-only memory was written by the program");
	FAIL_IF(*(uint64_t *)(r.mem + k * PAGE + 2048) != val, "write was lost");
	return KSFT_PASS;
}

/* Ordinary writes by the kernel count as the program's own. */
static int kernel_write(const struct layout *l, const char *mode)
{
	struct region r;
	struct peer p;
	int fd[2];

	NEED(region_get(&r, l, 1));
	NEED(peer_fork(&p));
	SYS(pipe(fd));
	for (int i = 0; i < r.pages; i += 3) {
		uint64_t val = stamp(i, 1);

		SYS(write(fd[1], &val, 8));
		SYS(read(fd[0], r.mem + i * PAGE, 8));
	}
	FAIL_IF(!peer_stamped(&p, r.mem, 0, r.pages, 0), "child sees the parent's writes");
	FAIL_IF(!peer_quit(&p), "child");
	for (int i = 0; i < r.pages; i++)
		FAIL_IF(*(uint64_t *)(r.mem + i * PAGE) != stamp(i, i % 3 ? 0 : 1),
			"page %d", i);
	NEED(fork_and_exit());
	for (int i = 0; i < r.pages; i++) {
		uint64_t val = stamp(i, 2);

		SYS(write(fd[1], &val, 8));
		SYS(read(fd[0], r.mem + i * PAGE, 8));
		FAIL_IF(*(uint64_t *)(r.mem + i * PAGE) != val, "page %d", i);
	}
	return KSFT_PASS;
}

static const struct test_case cases[] = {
	{ "Hole left by MADV_DONTNEED stays a hole",
	  hole_dontneed, ON_LARGE | ON_PMD },
	{ "Zero page amid the folio stays read-only",
	  hole_zero_page, ON_LARGE | ON_PMD },
	{ "Hole left by munmap stays a hole",
	  hole_munmap, ON_LARGE | ON_PMD },
	{ "Guard page amid the folio stays a guard",
	  hole_guard, ON_LARGE | ON_PMD },
	{ "Read-only mapping amid the folio stays read-only",
	  hole_readonly, ON_LARGE | ON_PMD },
	{ "Page of another folio, shared with a child, stays the child's",
	  foreign_shared_page, ON_LARGE },
	{ "Copied pages amid the folio, with and without a child",
	  copied_pages_amid, ON_LARGE | ON_PMD },
	{ "Next folio, next in memory too, stays shared with a child",
	  next_folio, ON_LARGE },
	{ "Previous folio, previous in memory too, stays shared with a child",
	  previous_folio, ON_LARGE },
	{ "Read-only tail of the folio stays read-only",
	  readonly_tail, ON_LARGE },
	{ "Read-only head of the folio stays read-only",
	  readonly_head, ON_LARGE },
	{ "Read-only pages in the folio's middle stay read-only",
	  readonly_middle, ON_LARGE },
	{ "Pages without any permission stay so",
	  protnone_middle, ON_LARGE },
	{ "Read-only and writable again by mprotect",
	  mprotect_roundtrip, ON_LARGE | ON_PMD },
	{ "Pages kept from fork by MADV_DONTFORK are not copied and not followed",
	  mixture_dontfork, ON_LARGE },
	{ "Half of the folio shared, half of it not",
	  partially_shared, ON_LARGE },
	{ "Half of the folio wiped on fork",
	  wipe_on_fork, ON_LARGE | ON_PMD },
	{ "Tail moved to a misaligned address in two page tables",
	  moved_tail, ON_LARGE },
	{ "Head moved to a misaligned address in two page tables",
	  moved_head, ON_LARGE },
	{ "Middle moved to a misaligned address in two page tables",
	  moved_middle, ON_LARGE },
	{ "Whole folio moved to a misaligned address in two page tables",
	  moved_whole, ON_LARGE },
	{ "A write in one page table leaves the folio's other half in another alone",
	  two_tables, ON_LARGE },
	{ "Two pages that changed places",
	  swapped_order, ON_LARGE },
	{ "Gap in the folio closed by moving its tail down",
	  closed_gap, ON_LARGE },
	{ "Folio of which only a part is mapped",
	  partially_mapped, ON_LARGE },
	{ "Pages given up that the child still has",
	  child_keeps_part, ON_LARGE | ON_PMD },
	{ "Debugger's PTRACE_POKEDATA to a read-only VMA leaves it read-only",
	  forced_poke, ON_LARGE | ON_PMD },
	{ "Debugger's write through /proc/PID/mem to a read-only VMA leaves it read-only",
	  forced_file, ON_LARGE | ON_PMD },
	{ "Program's write through /proc/self/mem to a read-only VMA leaves it read-only",
	  forced_proc_mem, ON_LARGE | ON_PMD },
	{ "Writes by the kernel for the program",
	  kernel_write, ON_LARGE | ON_PMD },
};

int main(void)
{
	run_cases(cases, ARRAY_SIZE(cases), "wp_reuse");
}

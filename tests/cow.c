// SPDX-License-Identifier: GPL-2.0
/*
 * Write faults on large folios that another process still shares: what is
 * copied, what it contains, what it may cost. All but the number of faults and
 * the counters holds on any kernel.
 *
 * Each mode of wp_copy: "never" copies page by page; "auto" where the writes
 * justify more; "always" whatever it can.
 */
#include "common.h"

#include <mm/gup_test.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <tools/include/uapi/linux/userfaultfd.h>

#define GUP_TEST_FILE "/sys/kernel/debug/gup_test"
#define BLOCK 16	/* pages of 64 KiB, the default cap */

static int get(struct region *r, const struct layout *l, int folios)
{
	sizes_set(l->folio, "never");
	NEED(region_get(r, l, folios));
	sizes_set(l->folio, "always");
	return KSFT_PASS;
}

static bool is_mode(const char *mode, const char *name)
{
	return mode && !strcmp(mode, name);
}

/* Does this kernel, in this mode, copy page by page? */
static bool single(const char *mode)
{
	return !mode || is_mode(mode, "never");
}

static void pfns(uint64_t *pfn, const char *mem, int pages)
{
	for (int i = 0; i < pages; i++)
		pfn[i] = pm_pfn(mem + i * PAGE);
}

/* Pages that are not those of @old any more. */
static int copied(const uint64_t *old, const char *mem, int pages)
{
	int n = 0;

	for (int i = 0; i < pages; i++)
		n += pm_pfn(mem + i * PAGE) != old[i];
	return n;
}

static unsigned int rnd_state;

static unsigned int rnd(unsigned int n)
{
	rnd_state = rnd_state * 1103515245 + 12345;
	return (rnd_state >> 8) % n;
}

static int *shuffled(int n)
{
	int *v = malloc(n * sizeof(*v));

	for (int i = 0; i < n; i++)
		v[i] = i;
	for (int i = n; i > 1; i--) {
		int j = rnd(i), t = v[i - 1];

		v[i - 1] = v[j];
		v[j] = t;
	}
	return v;
}

/* How many folios of a layout are some 1 MiB, at least two blocks. */
static int folios(const struct layout *l)
{
	return l->folio >= 1 << 20 ? 1 : (1 << 20) / l->folio;
}

/* --- contents ------------------------------------------------------------- */

/* Write all, in the order given; the child sees nothing of it, then writes. */
static int contents(const struct layout *l, const int *order, int pages,
		    struct region *r)
{
	struct peer p;

	NEED(peer_fork(&p));
	for (int i = 0; i < pages; i++)
		stamp_page(r->mem + order[i] * PAGE, order[i], 1);
	FAIL_STAMP(r->mem, 0, r->pages, 1, "parent, after its own writes");
	FAIL_IF(!peer_stamped(&p, r->mem, 0, r->pages, 0), "child sees the parent's");
	FAIL_IF(!peer_stamp(&p, r->mem, 0, r->pages, 2), "child cannot write");
	FAIL_STAMP(r->mem, 0, r->pages, 1, "parent sees the child's");
	FAIL_IF(!peer_stamped(&p, r->mem, 0, r->pages, 2), "child, its own");
	FAIL_IF(!peer_quit(&p), "child");
	stamp_range(r->mem, 0, r->pages, 3);
	FAIL_STAMP(r->mem, 0, r->pages, 3, "parent, alone");
	return KSFT_PASS;
}

static int contents_forward(const struct layout *l, const char *mode)
{
	struct region r;

	NEED(get(&r, l, folios(l)));
	int order[r.pages];

	for (int i = 0; i < r.pages; i++)
		order[i] = i;
	return contents(l, order, r.pages, &r);
}

static int contents_backward(const struct layout *l, const char *mode)
{
	struct region r;

	NEED(get(&r, l, folios(l)));
	int order[r.pages];

	for (int i = 0; i < r.pages; i++)
		order[i] = r.pages - 1 - i;
	return contents(l, order, r.pages, &r);
}

static int contents_random(const struct layout *l, const char *mode)
{
	struct region r;

	NEED(get(&r, l, folios(l)));
	return contents(l, shuffled(r.pages), r.pages, &r);
}

/* The child writes a page here and there first, then the parent all. */
static int contents_both(const struct layout *l, const char *mode)
{
	struct region r;
	struct peer p;

	NEED(get(&r, l, folios(l)));
	NEED(peer_fork(&p));
	for (int i = 3; i < r.pages; i += 7)
		FAIL_IF(!peer_stamp(&p, r.mem + i * PAGE, i, 1, 5), "child");
	stamp_range(r.mem, 0, r.pages, 1);
	FAIL_STAMP(r.mem, 0, r.pages, 1, "parent");
	for (int i = 0; i < r.pages; i++)
		FAIL_IF(!peer_stamped(&p, r.mem + i * PAGE, i, 1, i % 7 == 3 ? 5 : 0),
			"child, page %d", i);
	FAIL_IF(!peer_stamp(&p, r.mem, 0, r.pages, 6), "child");
	FAIL_STAMP(r.mem, 0, r.pages, 1, "parent sees the child's");
	return KSFT_PASS;
}

/*
 * A page that a copy brought along without being asked for is as good as any:
 * it is shared again by the next fork, written and read there.
 */
static int fork_between(const struct layout *l, const char *mode)
{
	struct region r;
	struct peer p, q;
	int half;

	NEED(get(&r, l, folios(l)));
	half = r.pages / 2;
	NEED(peer_fork(&p));
	stamp_range(r.mem, 0, half + 1, 1);
	NEED(peer_fork(&q));
	stamp_range(r.mem, 0, r.pages, 2);
	FAIL_IF(!peer_stamped(&p, r.mem, 0, r.pages, 0), "first child");
	FAIL_IF(!peer_stamped(&q, r.mem, 0, half + 1, 1), "second child, written");
	FAIL_IF(!peer_stamped(&q, r.mem + (half + 1) * PAGE, half + 1,
			      r.pages - half - 1, 0), "second child, not written");
	FAIL_IF(!peer_stamp(&q, r.mem, 0, r.pages, 3), "second child writes");
	FAIL_IF(!peer_stamped(&p, r.mem, 0, r.pages, 0), "first child");
	FAIL_STAMP(r.mem, 0, r.pages, 2, "parent");
	return KSFT_PASS;
}

/* --- what it costs -------------------------------------------------------- */

static int faults_forward(const struct layout *l, const char *mode)
{
	struct region r;
	struct peer p;
	long faults, hi;

	NEED(get(&r, l, folios(l)));
	NEED(peer_fork(&p));
	faults = stamp_faults(r.mem, 0, r.pages, 1);
	hi = r.pages;
	/* 16 KiB folios can only give copies of 16 KiB. */
	if (is_mode(mode, "auto"))
		hi = r.fpages < BLOCK ? r.pages / 4 + 6 : r.pages / BLOCK + 14;
	else if (is_mode(mode, "always"))
		hi = r.fpages < BLOCK ? r.pages / 4 : r.pages / BLOCK;
	FAIL_IF(faults > hi || (single(mode) && faults != r.pages),
		"%ld faults for %d pages, expected %ld", faults, r.pages, hi);
	if (!single(mode) && r.fpages >= BLOCK)
		FAIL_IF(!is_folios(r.mem + r.size - BLOCK * PAGE, BLOCK * PAGE,
				   BLOCK * PAGE), "not in folios of 64 KiB");
	return KSFT_PASS;
}

static int faults_backward(const struct layout *l, const char *mode)
{
	struct region r;
	struct peer p;
	long faults = 0, hi;

	NEED(get(&r, l, folios(l)));
	NEED(peer_fork(&p));
	for (int i = r.pages - 1; i >= 0; i--)
		faults += store_faults(r.mem + i * PAGE, i);
	hi = r.pages;
	if (is_mode(mode, "auto"))
		hi = r.fpages < BLOCK ? r.pages / 4 + 6 : r.pages / BLOCK + 14;
	else if (is_mode(mode, "always"))
		hi = r.fpages < BLOCK ? r.pages / 4 : r.pages / BLOCK;
	FAIL_IF(faults > hi || (single(mode) && faults != r.pages),
		"%ld faults for %d pages, expected %ld", faults, r.pages, hi);
	return KSFT_PASS;
}

/* A lone store copies its own page, and only that. */
static int lone_store(const struct layout *l, const char *mode)
{
	struct region r;
	struct peer p;
	int k, n, want;

	NEED(get(&r, l, folios(l)));
	k = odd_page(&r);
	uint64_t old[r.pages];

	pfns(old, r.mem, r.pages);
	NEED(peer_fork(&p));
	FAIL_IF(store_faults(r.mem + k * PAGE, 1) != 1, "not one fault");
	n = copied(old, r.mem, r.pages);
	want = !is_mode(mode, "always") ? 1 : r.fpages < BLOCK ? r.fpages : BLOCK;
	FAIL_IF(n != want, "%d pages copied, expected %d", n, want);
	return KSFT_PASS;
}

/* A store every 64 KiB copies one page each, to the last. */
static int sparse_stores(const struct layout *l, const char *mode)
{
	struct region r;
	struct peer p;
	int n;

	if (is_mode(mode, "always"))
		return skip("copies more, as it is asked to");
	NEED(get(&r, l, folios(l)));
	uint64_t old[r.pages];

	pfns(old, r.mem, r.pages);
	NEED(peer_fork(&p));
	for (int i = 0; i < r.pages; i += BLOCK)
		FAIL_IF(store_faults(r.mem + i * PAGE, 1) != 1, "not one fault");
	n = copied(old, r.mem, r.pages);
	FAIL_IF(n != r.pages / BLOCK, "%d pages copied", n);
	return KSFT_PASS;
}

/*
 * Whatever is written, at most half as much again as was written is copied
 * without having been written: 1.5 times, and what one fault may copy.
 */
static int bound_check(struct region *r, const uint64_t *old, const char *wrote,
		       const char *what)
{
	int written = 0, waste = 0;

	for (int i = 0; i < r->pages; i++) {
		bool is = pm_pfn(r->mem + i * PAGE) != old[i];

		FAIL_IF(wrote[i] && !is, "%s: page %d is written and still shared",
			what, i);
		written += wrote[i];
		waste += is && !wrote[i];
	}
	FAIL_IF(waste > written + written / 2, "%s: %d written, %d copied in vain",
		what, written, waste);
	return KSFT_PASS;
}

static int waste_bounded(const struct layout *l, const char *mode)
{
	if (is_mode(mode, "always"))
		return skip("has no bound, as it is asked to");
	for (int run = 0; run < 6; run++) {
		struct region r;
		struct peer p;
		int len = 1 << run, res;

		NEED(get(&r, l, folios(l)));
		uint64_t old[r.pages];
		char wrote[r.pages];

		memset(wrote, 0, sizeof(wrote));
		pfns(old, r.mem, r.pages);
		NEED(peer_fork(&p));
		rnd_state = run + 1;
		/* Runs that end just where a rule has been convinced. */
		for (int i = 0; i < r.pages / 4 / len; i++) {
			int at = rnd(r.pages / len) * len;

			for (int j = 0; j <= len && at + j < r.pages; j++) {
				r.mem[(at + j) * PAGE] = 1;
				wrote[at + j] = 1;
			}
			if (at) {
				r.mem[(at - 1) * PAGE] = 1;
				wrote[at - 1] = 1;
			}
		}
		res = bound_check(&r, old, wrote, "runs");
		FAIL_IF(!peer_quit(&p), "child");
		munmap(r.mem, r.size);
		NEED(res);
	}
	return KSFT_PASS;
}

/*
 * A run that convinces, then one store to each page that is still shared next
 * to what was copied: a page that is copied along must not count as written.
 */
static int waste_bait(const struct layout *l, const char *mode)
{
	struct region r;
	struct peer p;
	int stores = 8;

	if (is_mode(mode, "always"))
		return skip("has no bound, as it is asked to");
	NEED(get(&r, l, folios(l)));
	uint64_t old[r.pages];
	char wrote[r.pages];

	memset(wrote, 0, sizeof(wrote));
	pfns(old, r.mem, r.pages);
	NEED(peer_fork(&p));
	for (int i = 0; i < 8; i++) {
		r.mem[i * PAGE] = 1;
		wrote[i] = 1;
	}
	for (int i = 8; i < r.pages && stores < 40; i++) {
		if (pm_pfn(r.mem + i * PAGE) != old[i])
			continue;
		r.mem[i * PAGE] = 1;
		wrote[i] = 1;
		stores++;
	}
	return bound_check(&r, old, wrote, "bait");
}

/* A random tenth, and a random half: at most a tenth more is copied in vain. */
static int waste_random(const struct layout *l, const char *mode)
{
	if (is_mode(mode, "always"))
		return skip("has no bound, as it is asked to");
	for (int part = 10; part >= 2; part -= 8) {
		struct region r;
		struct peer p;
		int n, *order;

		NEED(get(&r, l, folios(l)));
		uint64_t old[r.pages];

		pfns(old, r.mem, r.pages);
		NEED(peer_fork(&p));
		rnd_state = part;
		order = shuffled(r.pages);
		for (int i = 0; i < r.pages / part; i++)
			r.mem[order[i] * PAGE] = 1;
		n = copied(old, r.mem, r.pages) - r.pages / part;
		FAIL_IF(n > r.pages / part / 10,
			"%d of %d written, %d more copied", r.pages / part,
			r.pages, n);
		FAIL_IF(!peer_quit(&p), "child");
		munmap(r.mem, r.size);
	}
	return KSFT_PASS;
}

static int counters(const struct layout *l, const char *mode)
{
	struct region r;
	struct peer p;
	long alloc, extra;

	if (!mode)
		return skip("kernel has no wp_copy");
	NEED(get(&r, l, folios(l)));
	NEED(peer_fork(&p));
	alloc = thp_stat(64 << 10, "wp_fault_alloc");
	extra = thp_stat(l->folio, "wp_fault_copied_extra");
	FAIL_IF(alloc < 0 || extra < 0, "no counters");
	stamp_range(r.mem, 0, r.pages, 1);
	alloc = thp_stat(64 << 10, "wp_fault_alloc") - alloc;
	extra = thp_stat(l->folio, "wp_fault_copied_extra") - extra;
	if (single(mode))
		FAIL_IF(alloc || extra, "%ld allocated, %ld extra", alloc, extra);
	else if (r.fpages >= BLOCK)
		FAIL_IF(alloc < r.pages / BLOCK - 3 || alloc > r.pages / BLOCK ||
			extra < alloc * (BLOCK - 1) || extra > r.pages,
			"%ld allocated, %ld extra", alloc, extra);
	return KSFT_PASS;
}

/* --- what must not be copied, or not be made writable ---------------------- */

/*
 * Pages that are in a pipe when the process forks stay one with the process:
 * they are exclusive, their neighbours are not. Read-only they are all.
 */
static int pinned_before(const struct layout *l, const char *mode)
{
	struct iovec iov;
	struct region r;
	struct peer p;
	int fd[2], k;

	NEED(get(&r, l, folios(l)));
	k = r.pages > 40 ? 37 : odd_page(&r);
	iov.iov_base = r.mem + k * PAGE;
	iov.iov_len = PAGE;
	SYS(pipe(fd));
	FAIL_IF(vmsplice(fd[1], &iov, 1, 0) != (ssize_t)PAGE, "vmsplice");
	NEED(peer_fork(&p));
	stamp_range(r.mem, 0, r.pages, 1);
	FAIL_STAMP(r.mem, 0, r.pages, 1, "parent");
	FAIL_IF(!peer_stamped(&p, r.mem, 0, r.pages, 0), "child");
	FAIL_IF(!peer_stamp(&p, r.mem, 0, r.pages, 2), "child writes");
	FAIL_STAMP(r.mem, 0, r.pages, 1, "parent");
	return KSFT_PASS;
}

/* A long-term pin of page @k, as of a buffer that a device reads and writes. */
static int pin(int *fd, struct region *r, int k, int flags)
{
	struct pin_longterm_test args = {
		.addr = (uintptr_t)r->mem + k * PAGE, .size = PAGE, .flags = flags,
	};

	*fd = open(GUP_TEST_FILE, O_RDWR | O_CLOEXEC);
	if (*fd < 0)
		return skip("no " GUP_TEST_FILE " (CONFIG_GUP_TEST)");
	SYS(ioctl(*fd, PIN_LONGTERM_TEST_START, &args));
	return KSFT_PASS;
}

/* Write everything: the pinned page stays where it is, and the pin sees it. */
static int write_pinned(int fd, struct region *r, int k)
{
	const uint64_t pfn = pm_pfn(r->mem + k * PAGE);
	static char buf[PAGE];
	__u64 val = (uintptr_t)buf;

	stamp_range(r->mem, 0, r->pages, 1);
	FAIL_STAMP(r->mem, 0, r->pages, 1, "after the writes");
	FAIL_IF(pm_pfn(r->mem + k * PAGE) != pfn, "the pinned page was copied");
	SYS(ioctl(fd, PIN_LONGTERM_TEST_READ, &val));
	FAIL_IF(!stamp_ok(buf, k, 1), "pin and process see different pages");
	SYS(ioctl(fd, PIN_LONGTERM_TEST_STOP));
	close(fd);
	return KSFT_PASS;
}

static int pinned_long_before(const struct layout *l, const char *mode)
{
	struct region r;
	struct peer p;
	int fd, k;

	NEED(get(&r, l, folios(l)));
	k = r.pages > 40 ? 37 : odd_page(&r);
	NEED(pin(&fd, &r, k, PIN_LONGTERM_TEST_FLAG_USE_WRITE));
	NEED(peer_fork(&p));
	NEED(write_pinned(fd, &r, k));
	FAIL_IF(!peer_stamped(&p, r.mem, 0, r.pages, 0), "child");
	return KSFT_PASS;
}

/*
 * Pinned with a child alive: the pin has made this one page the process's own,
 * amid shared ones. A pin for reading leaves it read-only.
 */
static int pinned_long_shared(const struct layout *l, int flags)
{
	struct region r;
	struct peer p;
	int fd, k;

	NEED(get(&r, l, folios(l)));
	k = r.pages > 40 ? 37 : odd_page(&r);
	NEED(peer_fork(&p));
	NEED(pin(&fd, &r, k, flags));
	NEED(write_pinned(fd, &r, k));
	FAIL_IF(!peer_stamped(&p, r.mem, 0, r.pages, 0), "child");
	return KSFT_PASS;
}

static int pinned_long_shared_ro(const struct layout *l, const char *mode)
{
	return pinned_long_shared(l, 0);
}

static int pinned_long_shared_rw(const struct layout *l, const char *mode)
{
	return pinned_long_shared(l, PIN_LONGTERM_TEST_FLAG_USE_WRITE);
}

/* The same in the child, of what it has from its parent. */
static int pinned_long_child(const struct layout *l, const char *mode)
{
	struct region r;
	int fd, k, status;
	pid_t pid;

	NEED(get(&r, l, folios(l)));
	k = r.pages > 40 ? 37 : odd_page(&r);
	fd = open(GUP_TEST_FILE, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return skip("no " GUP_TEST_FILE " (CONFIG_GUP_TEST)");
	close(fd);
	pid = fork();
	SYS(pid);
	if (!pid) {
		status = pin(&fd, &r, k, 0);
		if (status == KSFT_PASS)
			status = write_pinned(fd, &r, k);
		_exit(status);
	}
	SYS(waitpid(pid, &status, 0));
	FAIL_IF(!WIFEXITED(status) || WEXITSTATUS(status) != KSFT_PASS, "child");
	FAIL_STAMP(r.mem, 0, r.pages, 0, "parent");
	return KSFT_PASS;
}

/*
 * A page that is exclusive, but read-only, amid shared ones of the same folio:
 * it was kept from the child, and has been write-protected by a tracking of
 * soft-dirty pages that has ended. It has to be reused.
 */
static int exclusive_amid(const struct layout *l, const char *mode)
{
	struct region r;
	struct peer p;
	uint64_t pfn;
	int k = 8 + 32;

	NEED(get(&r, l, folios(l)));
	if (r.pages < 64)
		return skip("too small");
	SYS(madvise(r.mem + k * PAGE, PAGE, MADV_DONTFORK));
	NEED(peer_fork(&p));
	SYS(madvise(r.mem + k * PAGE, PAGE, MADV_DOFORK));
	if (file_write("/proc/self/clear_refs", "4") ||
	    (pm_entry(r.mem) & PM_SOFT_DIRTY))
		return skip("no soft-dirty tracking");
	/* Merges, and what is new is soft-dirty as a whole. */
	FAIL_IF(!mmap_anon(r.mem + r.size, MB2, PROT_READ | PROT_WRITE), "mmap");
	if (!(pm_entry(r.mem) & PM_SOFT_DIRTY))
		return skip("areas did not merge");
	pfn = pm_pfn(r.mem + k * PAGE);
	stamp_range(r.mem, 0, r.pages, 1);
	FAIL_IF(pm_pfn(r.mem + k * PAGE) != pfn, "an exclusive page was copied");
	FAIL_STAMP(r.mem, 0, r.pages, 1, "parent");
	FAIL_IF(!peer_stamped(&p, r.mem, 0, k, 0), "child");
	FAIL_IF(!peer_stamped(&p, r.mem + (k + 1) * PAGE, k + 1, r.pages - k - 1, 0),
		"child");
	return KSFT_PASS;
}

static int read_only_vma_beside(const struct layout *l, const char *mode)
{
	struct region r;
	struct peer p;
	int cut = 40 + 3;

	NEED(get(&r, l, folios(l)));
	if (r.pages < 64)
		return skip("too small");
	NEED(peer_fork(&p));
	SYS(mprotect(r.mem + cut * PAGE, r.size - cut * PAGE, PROT_READ));
	stamp_range(r.mem, 0, cut, 1);
	for (int i = cut; i < r.pages; i++)
		FAIL_IF(store_signal(r.mem + i * PAGE) != SIGSEGV,
			"page %d of a read-only VMA is writable", i);
	FAIL_STAMP(r.mem, 0, cut, 1, "written");
	FAIL_STAMP(r.mem + cut * PAGE, cut, r.pages - cut, 0, "not written");
	FAIL_IF(!peer_stamped(&p, r.mem, 0, r.pages, 0), "child");
	return KSFT_PASS;
}

/* mremap to addresses that are aligned neither to folios nor to blocks. */
static int moved(const struct layout *l, const char *mode)
{
	for (int shift = 1; shift <= 12; shift += shift < 4 ? 1 : 4) {
		struct region r;
		struct peer p;
		char *to;

		NEED(get(&r, l, folios(l)));
		NEED(peer_fork(&p));
		to = reserve(r.size + MB2);
		FAIL_IF(!to, "reserve");
		to = move(r.mem, r.size, to + shift * PAGE);
		FAIL_IF(!to, "mremap");
		stamp_range(to, 0, r.pages, 1);
		FAIL_STAMP(to, 0, r.pages, 1, "moved by %d pages", shift);
		FAIL_IF(!peer_stamped(&p, r.mem, 0, r.pages, 0), "child");
		FAIL_IF(!peer_quit(&p), "child");
		munmap(to, r.size);
	}
	return KSFT_PASS;
}

/* Two folios' pages interleaved by mremap: read-only PTEs, but not one folio. */
static int interleaved(const struct layout *l, const char *mode)
{
	struct region r;
	struct peer p;
	char *to;
	int n;

	NEED(get(&r, l, 2 * (l->folio >= 1 << 20 ? 1 : 16)));
	n = r.pages / 2 > 64 ? 64 : r.pages / 2;
	NEED(peer_fork(&p));
	to = reserve(2 * n * PAGE);
	FAIL_IF(!to, "reserve");
	/* Swap every third page of the first half with one of the second. */
	for (int i = 0; i < n; i++) {
		int from = i % 3 == 2 ? i + r.pages / 2 : i;

		FAIL_IF(!move(r.mem + from * PAGE, PAGE, to + i * PAGE), "mremap");
	}
	for (int i = 0; i < n; i++)
		stamp_page(to + i * PAGE, i, 1);
	FAIL_STAMP(to, 0, n, 1, "parent");
	FAIL_IF(!peer_stamped(&p, r.mem, 0, r.pages, 0), "child");
	FAIL_IF(!peer_stamp(&p, r.mem, 0, r.pages, 2), "child writes");
	FAIL_STAMP(to, 0, n, 1, "parent");
	return KSFT_PASS;
}

/* Holes, and pages that were replaced, within what would be a block. */
static int holes(const struct layout *l, const char *mode)
{
	struct region r;
	struct peer p;

	NEED(get(&r, l, folios(l)));
	NEED(peer_fork(&p));
	for (int i = 5; i < r.pages; i += 23)
		SYS(madvise(r.mem + i * PAGE, PAGE, MADV_DONTNEED));
	for (int i = 0; i < r.pages; i++)
		if (i % 23 != 5)
			stamp_page(r.mem + i * PAGE, i, 1);
	for (int i = 0; i < r.pages; i++) {
		if (i % 23 == 5)
			FAIL_IF(zero_bad(r.mem + i * PAGE, 1) >= 0, "hole %d", i);
		else
			FAIL_STAMP(r.mem + i * PAGE, i, 1, 1, "page %d", i);
	}
	FAIL_IF(!peer_stamped(&p, r.mem, 0, r.pages, 0), "child");
	return KSFT_PASS;
}

/* ptrace-like writes to a read-only VMA make nothing else writable. */
static int forced(const struct layout *l, const char *mode)
{
	struct region r;
	struct peer p;
	int fd;

	NEED(get(&r, l, folios(l)));
	NEED(peer_fork(&p));
	stamp_range(r.mem, 0, r.pages / 2, 1);
	SYS(mprotect(r.mem, r.size, PROT_READ));
	fd = open("/proc/self/mem", O_RDWR);
	FAIL_IF(fd < 0, "/proc/self/mem");
	for (int i = 0; i < r.pages; i++) {
		uint64_t w = stamp(i, 7);

		if (pwrite(fd, &w, sizeof(w), (off_t)(r.mem + i * PAGE)) != sizeof(w))
			return skip("forced writes are not allowed");
	}
	for (int i = 0; i < r.pages; i++)
		FAIL_IF(store_signal(r.mem + i * PAGE) != SIGSEGV,
			"page %d of a read-only VMA is writable", i);
	FAIL_IF(!peer_stamped(&p, r.mem, 0, r.pages, 0), "child");
	return KSFT_PASS;
}

/* --- tracking -------------------------------------------------------------- */

static int soft_dirty(const struct layout *l, const char *mode)
{
	struct region r;
	struct peer p;
	int n;

	NEED(get(&r, l, folios(l)));
	n = r.pages - BLOCK - 3;
	if (n < 8)
		n = r.pages / 2;
	if (file_write("/proc/self/clear_refs", "4") ||
	    (pm_entry(r.mem) & PM_SOFT_DIRTY))
		return skip("no soft-dirty tracking");
	NEED(peer_fork(&p));
	for (int i = 0; i < n; i++)
		*(volatile char *)(r.mem + i * PAGE) = 1;
	for (int i = 0; i < r.pages; i++)
		FAIL_IF(!(pm_entry(r.mem + i * PAGE) & PM_SOFT_DIRTY) != (i >= n),
			"page %d of %d written is %sdirty", i, n, i < n ? "not " : "");
	/* What was copied along, if anything, must still be seen when written. */
	for (int i = n; i < r.pages; i++) {
		*(volatile char *)(r.mem + i * PAGE) = 1;
		FAIL_IF(!(pm_entry(r.mem + i * PAGE) & PM_SOFT_DIRTY),
			"the write to page %d was missed", i);
	}
	return KSFT_PASS;
}

/* The tracking begins after pages were copied along. */
static int soft_dirty_after(const struct layout *l, const char *mode)
{
	struct region r;
	struct peer p;
	int n;

	NEED(get(&r, l, folios(l)));
	n = r.pages / 2 + 1;
	NEED(peer_fork(&p));
	stamp_range(r.mem, 0, n, 1);
	if (file_write("/proc/self/clear_refs", "4") ||
	    (pm_entry(r.mem) & PM_SOFT_DIRTY))
		return skip("no soft-dirty tracking");
	for (int i = 0; i < r.pages; i += 2)
		stamp_page(r.mem + i * PAGE, i, 2);
	for (int i = 0; i < r.pages; i++)
		FAIL_IF((pm_entry(r.mem + i * PAGE) & PM_SOFT_DIRTY) ? i % 2 : !(i % 2),
			"page %d", i);
	return KSFT_PASS;
}

static int uffd_wp(const struct layout *l, const char *mode)
{
	struct uffdio_api api = {
		.api = UFFD_API,
		.features = UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_WP_ASYNC |
			    UFFD_FEATURE_WP_UNPOPULATED,
	};
	struct uffdio_register reg = { .mode = UFFDIO_REGISTER_MODE_WP };
	struct uffdio_writeprotect wp = { .mode = UFFDIO_WRITEPROTECT_MODE_WP };
	struct region r;
	struct peer p;
	int fd, n;

	NEED(get(&r, l, folios(l)));
	n = r.pages - BLOCK - 3;
	if (n < 8)
		n = r.pages / 2;
	fd = syscall(__NR_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	if (fd < 0 || ioctl(fd, UFFDIO_API, &api))
		return skip("no asynchronous userfaultfd-wp");
	NEED(peer_fork(&p));
	reg.range.start = (unsigned long)r.mem;
	reg.range.len = r.size;
	wp.range = reg.range;
	SYS(ioctl(fd, UFFDIO_REGISTER, &reg));
	SYS(ioctl(fd, UFFDIO_WRITEPROTECT, &wp));
	for (int i = 0; i < n; i++)
		stamp_page(r.mem + i * PAGE, i, 1);
	for (int i = 0; i < r.pages; i++)
		FAIL_IF(!(pm_entry(r.mem + i * PAGE) & PM_UFFD_WP) != (i < n),
			"page %d", i);
	FAIL_IF(!peer_stamped(&p, r.mem, 0, r.pages, 0), "child");
	return KSFT_PASS;
}

/* --- what happens to pages that were copied but not written ---------------- */

static int clean_swap(const struct layout *l, const char *mode)
{
	struct region r;
	struct peer p;
	int n;

	NEED(need_swap());
	NEED(get(&r, l, folios(l)));
	n = r.pages / 2 + 1;
	NEED(peer_fork(&p));
	stamp_range(r.mem, 0, n, 1);
	FAIL_IF(!peer_quit(&p), "child");
	SYS(madvise(r.mem, r.size, MADV_PAGEOUT));
	FAIL_STAMP(r.mem, 0, n, 1, "written pages, from swap");
	FAIL_STAMP(r.mem + n * PAGE, n, r.pages - n, 0, "the others, from swap");
	SYS(madvise(r.mem, r.size, MADV_PAGEOUT));
	stamp_range(r.mem, 0, r.pages, 2);
	FAIL_STAMP(r.mem, 0, r.pages, 2, "written after swap");
	return KSFT_PASS;
}

/* The child has none of the written pages any more, only what was copied along. */
static int clean_lazyfree_shared(const struct layout *l, const char *mode)
{
	struct region r;
	struct peer p;
	int n;

	NEED(need_swap());
	NEED(cgroup_enter());
	NEED(get(&r, l, folios(l)));
	n = r.pages / 2 + 1;
	NEED(peer_fork(&p));
	stamp_range(r.mem, 0, n, 1);
	FAIL_IF(!peer_quit(&p), "child");
	NEED(peer_fork(&p));
	FAIL_IF(!peer_munmap(&p, r.mem, n * PAGE), "child, munmap");
	SYS(madvise(r.mem, r.size, MADV_FREE));
	cgroup_reclaim(r.size);
	FAIL_IF(!peer_stamped(&p, r.mem + n * PAGE, n, r.pages - n, 0),
		"child, after the parent's MADV_FREE and reclaim");
	FAIL_IF(!peer_quit(&p), "second child");
	return KSFT_PASS;
}

static int clean_lazyfree(const struct layout *l, const char *mode)
{
	struct region r;
	struct peer p;
	int n, k;

	NEED(get(&r, l, folios(l)));
	n = r.pages / 2 + 1;
	NEED(peer_fork(&p));
	stamp_range(r.mem, 0, n, 1);
	FAIL_IF(!peer_quit(&p), "child");
	SYS(madvise(r.mem, r.size, MADV_FREE));
	for (k = 0; k < r.pages; k += 3)
		stamp_page(r.mem + k * PAGE, k, 2);
	SYS(madvise(r.mem, r.size, MADV_PAGEOUT));
	for (k = 0; k < r.pages; k++) {
		uint64_t w = *(volatile uint64_t *)(r.mem + k * PAGE);

		if (!(k % 3))
			FAIL_STAMP(r.mem + k * PAGE, k, 1, 2, "written after MADV_FREE");
		else if (w)
			FAIL_STAMP(r.mem + k * PAGE, k, 1, k < n, "neither old nor zero");
	}
	return KSFT_PASS;
}

/* --- pressure and threads --------------------------------------------------- */

static int memcg_limit(const struct layout *l, const char *mode)
{
	struct region r;
	struct peer p;
	long now;

	NEED(need_swap());
	NEED(cgroup_enter());
	NEED(get(&r, l, folios(l)));
	NEED(peer_fork(&p));
	now = cgroup_current();
	FAIL_IF(now < 0, "memory.current");
	FAIL_IF(cgroup_limit(now + 128 * 1024), "memory.max");
	stamp_range(r.mem, 0, r.pages, 1);
	FAIL_STAMP(r.mem, 0, r.pages, 1, "parent");
	FAIL_IF(cgroup_kills() > 0, "oom kill");
	cgroup_limit(-1);
	FAIL_IF(!peer_stamped(&p, r.mem, 0, r.pages, 0), "child");
	return KSFT_PASS;
}

#define THREADS 4

static struct region *shared_r;
static int *shared_order[THREADS];	/* of the pages */
static pthread_barrier_t start;

static void *writer(void *arg)
{
	long me = (long)arg;

	pthread_barrier_wait(&start);
	/* Each writes its own word of every page, neighbours at the same time. */
	for (int n = 0; n < shared_r->pages; n++) {
		int i = shared_order[me][n];

		((volatile uint64_t *)(shared_r->mem + i * PAGE))[8 + me] =
			stamp(i, 10 + me);
	}
	return NULL;
}

/* Forward, or 64 pages after the other, but these at random. */
static int *thread_order(int pages, bool random)
{
	int *v = malloc(pages * sizeof(*v));

	for (int at = 0; at < pages; at += 64) {
		int n = pages - at < 64 ? pages - at : 64, *w = shuffled(n);

		for (int i = 0; i < n; i++)
			v[at + i] = at + (random ? w[i] : i);
		free(w);
	}
	return v;
}

static int threads(const struct layout *l, const char *mode)
{
	for (int round = 0; round < 10; round++) {
		pthread_t t[THREADS];
		struct region r;
		struct peer p;

		NEED(get(&r, l, folios(l)));
		shared_r = &r;
		for (int i = 0; i < THREADS; i++)
			shared_order[i] = thread_order(r.pages, round % 5);
		NEED(peer_fork(&p));
		pthread_barrier_init(&start, NULL, THREADS);
		for (long i = 0; i < THREADS; i++)
			pthread_create(&t[i], NULL, writer, (void *)i);
		for (int i = 0; i < THREADS; i++)
			pthread_join(t[i], NULL);
		for (int i = 0; i < r.pages; i++)
			for (int j = 0; j < THREADS; j++)
				FAIL_IF(((uint64_t *)(r.mem + i * PAGE))[8 + j] !=
					stamp(i, 10 + j), "page %d lost thread %d's", i, j);
		FAIL_IF(!peer_stamped(&p, r.mem, 0, r.pages, 0), "child");
		FAIL_IF(!peer_quit(&p), "child");
		munmap(r.mem, r.size);
	}
	return KSFT_PASS;
}

/* --- the zero page ----------------------------------------------------------- */

static int zero_read_first(const struct layout *l, const char *mode)
{
	char *mem = reserve(MB2);
	long faults = 0;
	int pages = MB2 / PAGE;

	sizes_set(l->folio, "always");
	size_set(l->folio, "always");
	if (l->folio == MB2)
		size_set(MB2, "never");
	mem = mmap_anon(mem, MB2, PROT_READ | PROT_WRITE);
	FAIL_IF(!mem, "mmap");
	for (int i = 0; i < pages; i++)
		FAIL_IF(mem[i * PAGE], "not zero");
	for (int i = 0; i < pages; i++) {
		faults += store_faults(mem + i * PAGE, stamp(i, 1));
		/* The rest of the block is zero, and there. */
		for (int j = i + 1; j < pages && j < i + BLOCK; j++)
			FAIL_IF(*(volatile uint64_t *)(mem + j * PAGE), "page %d", j);
	}
	for (int i = 0; i < pages; i++)
		FAIL_IF(*(uint64_t *)(mem + i * PAGE) != stamp(i, 1), "page %d", i);
	if (single(mode))
		FAIL_IF(faults != pages, "%ld faults", faults);
	else
		FAIL_IF(faults != pages / BLOCK, "%ld faults", faults);
	size_set(l->folio, "always");
	return KSFT_PASS;
}

/* Zero pages, holes and a page that has been written already. */
static int zero_mixed(const struct layout *l, const char *mode)
{
	char *mem = reserve(MB2);
	int pages = MB2 / PAGE;

	sizes_set(l->folio, "never");
	size_set(l->folio, "never");
	mem = mmap_anon(mem, MB2, PROT_READ | PROT_WRITE);
	FAIL_IF(!mem, "mmap");
	for (int i = 0; i < pages; i += 2)
		FAIL_IF(mem[i * PAGE], "not zero");
	for (int i = 5; i < pages; i += 40)
		stamp_page(mem + i * PAGE, i, 1);
	sizes_set(l->folio, "always");
	size_set(l->folio, "always");
	if (l->folio == MB2)
		size_set(MB2, "never");
	for (int i = 2; i < pages; i += 17)
		if (i % 40 != 5)
			stamp_page(mem + i * PAGE, i, 2);
	for (int i = 0; i < pages; i++) {
		if (i % 40 == 5)
			FAIL_STAMP(mem + i * PAGE, i, 1, 1, "written first");
		else if (i % 17 == 2)
			FAIL_STAMP(mem + i * PAGE, i, 1, 2, "written last");
		else
			FAIL_IF(zero_bad(mem + i * PAGE, 1) >= 0, "page %d", i);
	}
	size_set(l->folio, "always");
	munmap(mem, MB2);
	return KSFT_PASS;
}

static const struct test_case cases[] = {
	{ "forward: each sees its own writes and none of the other's",
	  contents_forward, ON_LARGE },
	{ "backward: the same", contents_backward, ON_LARGE },
	{ "at random: the same", contents_random, ON_EVERY },
	{ "both write: the same", contents_both, ON_LARGE },
	{ "pages copied along are shared with the next child",
	  fork_between, ON_LARGE },
	{ "forward: number of faults, size of the copies",
	  faults_forward, ON_LARGE },
	{ "backward: number of faults", faults_backward, ON_LARGE },
	{ "a lone store copies one page", lone_store, ON_LARGE },
	{ "a store per 64 KiB copies one page each", sparse_stores, ON_64K_UP },
	{ "copied in vain: at most 1.5 times what was written",
	  waste_bounded, ON_LARGE },
	{ "copied in vain: what is copied along does not count as written",
	  waste_bait, ON_LARGE },
	{ "copied in vain, at random: next to nothing", waste_random, ON_64K_UP },
	{ "counters", counters, ON_64K_UP },
	{ "a page in a pipe before the fork stays one with the process",
	  pinned_before, ON_LARGE },
	{ "a page pinned before the fork stays where it is",
	  pinned_long_before, ON_LARGE },
	{ "a page pinned for reading with a child alive stays where it is",
	  pinned_long_shared_ro, ON_LARGE },
	{ "a page pinned for writing with a child alive stays where it is",
	  pinned_long_shared_rw, ON_LARGE },
	{ "a page that the child has pinned stays where it is",
	  pinned_long_child, ON_LARGE },
	{ "an exclusive page amid shared ones is reused, not copied",
	  exclusive_amid, ON_LARGE },
	{ "a read-only VMA beside stays read-only", read_only_vma_beside, ON_LARGE },
	{ "moved to addresses that are not aligned", moved, ON_LARGE },
	{ "pages of two folios interleaved", interleaved, ON_LARGE },
	{ "holes within a block", holes, ON_LARGE },
	{ "forced writes make nothing writable", forced, ON_LARGE },
	{ "soft-dirty sees each write and no other", soft_dirty, ON_LARGE },
	{ "soft-dirty, begun after the copies, sees each write",
	  soft_dirty_after, ON_LARGE },
	{ "userfaultfd-wp sees each write and no other", uffd_wp, ON_LARGE },
	{ "pages copied along survive swap", clean_swap, ON_LARGE },
	{ "nothing written after MADV_FREE is lost", clean_lazyfree, ON_LARGE },
	{ "copied along, then shared again, outlives MADV_FREE by the other",
	  clean_lazyfree_shared, ON_LARGE },
	{ "a memory cgroup at its limit", memcg_limit, ON_LARGE },
	{ "threads that write to the same pages lose nothing", threads, ON_LARGE },
	{ "zero page: read first, then written", zero_read_first, ON_64K_UP },
	{ "zero page: beside holes and written pages", zero_mixed, ON_64K_UP },
};

int main(void)
{
	run_cases(cases, ARRAY_SIZE(cases), "wp_copy");
}

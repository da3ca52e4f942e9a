// SPDX-License-Identifier: GPL-2.0
/*
 * Write tracking on a large folio that is exclusive again after fork():
 * userfaultfd write-protection (synchronous and asynchronous), its read-write
 * protection, and soft-dirty see the first write to each page, and no write
 * that was not made. Holds on any kernel.
 */
#include "common.h"

#include <poll.h>
#include <sys/syscall.h>
#include <mm/gup_test.h>
#include <tools/include/uapi/linux/fs.h>
#include <tools/include/uapi/linux/userfaultfd.h>

/* Which pages are written, or protected: several runs and single pages. */
static bool chosen(int i, int pages)
{
	/* 16 apart and 3 apart, and a run by the middle. */
	return i % 16 == 5 || i % 3 == 1 ||
	       (i >= pages / 2 - 4 && i < pages / 2 + 3);
}

/* --- userfaultfd, synchronous -------------------------------------------- */

static int uffd_open(uint64_t features)
{
	struct uffdio_api api = { .api = UFFD_API, .features = features };
	int fd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);

	if (fd < 0)
		return -1;
	if (ioctl(fd, UFFDIO_API, &api)) {
		close(fd);
		return -1;
	}
	return fd;
}

static int uffd_register(int fd, struct region *r, uint64_t mode)
{
	struct uffdio_register reg = {
		.range = { (uintptr_t)r->mem, r->size },
		.mode = mode,
	};

	return ioctl(fd, UFFDIO_REGISTER, &reg);
}

static int uffd_wp(int fd, char *addr, size_t bytes, bool protect)
{
	struct uffdio_writeprotect wp = {
		.range = { (uintptr_t)addr, bytes },
		.mode = protect ? UFFDIO_WRITEPROTECT_MODE_WP : 0,
	};

	return ioctl(fd, UFFDIO_WRITEPROTECT, &wp);
}

struct handler {
	int fd, stop;
	char *mem;
	size_t size;
	int other;			/* messages that make no sense */
	int seen[3 * 512];		/* messages for each page */
	pthread_t thread;
};

static void *handle(void *arg)
{
	struct handler *h = arg;
	struct pollfd fds[2] = { { h->fd, POLLIN, 0 }, { h->stop, POLLIN, 0 } };
	struct uffd_msg msg;

	while (poll(fds, 2, -1) > 0) {
		if (fds[1].revents)
			break;
		if (read(h->fd, &msg, sizeof(msg)) != sizeof(msg))
			continue;
		if (msg.event != UFFD_EVENT_PAGEFAULT ||
		    !(msg.arg.pagefault.flags & UFFD_PAGEFAULT_FLAG_WP)) {
			h->other++;
			continue;
		}
		msg.arg.pagefault.address &= ~(PAGE - 1);
		h->seen[(msg.arg.pagefault.address - (uintptr_t)h->mem) / PAGE]++;
		uffd_wp(h->fd, (char *)msg.arg.pagefault.address, PAGE, false);
	}
	return NULL;
}

/* @before: protect before the fork. @all: all pages, not the chosen ones. */
static int uffd_sync(const struct layout *l, bool before, bool all)
{
	static struct handler h;
	struct region r;
	int stop[2];

	h.fd = uffd_open(UFFD_FEATURE_PAGEFAULT_FLAG_WP);
	if (h.fd < 0)
		return skip("kernel has no userfaultfd write-protection: %s",
			    strerror(errno));
	SYS(pipe(stop));
	h.stop = stop[0];
	NEED(region_get(&r, l, FEW(l)));
	h.mem = r.mem;
	h.size = r.size;
	SYS(uffd_register(h.fd, &r, UFFDIO_REGISTER_MODE_WP));
	if (!before)
		NEED(fork_and_exit());
	for (int i = 0; i < r.pages; i++)
		if (all || chosen(i, r.pages))
			SYS(uffd_wp(h.fd, r.mem + i * PAGE, PAGE, true));
	if (before)
		NEED(fork_and_exit());
	FAIL_IF(pthread_create(&h.thread, NULL, handle, &h), "thread");

	for (int i = 0; i < r.pages; i++)
		if (!all && !chosen(i, r.pages))
			stamp_page(r.mem + i * PAGE, i, 1);
	for (int i = 0; i < r.pages; i++)
		FAIL_IF(h.seen[i], "page %d: message without a write to it", i);
	for (int i = 0; i < r.pages; i++) {
		if (!all && !chosen(i, r.pages))
			continue;
		stamp_page(r.mem + i * PAGE, i, 2);
		FAIL_IF(h.seen[i] != 1, "page %d: %d messages for its first write",
			i, h.seen[i]);
	}
	for (int i = 0; i < r.pages; i++) {
		bool c = all || chosen(i, r.pages);

		FAIL_IF(h.seen[i] != c, "page %d: %d messages", i, h.seen[i]);
		FAIL_STAMP(r.mem + i * PAGE, i, 1, c ? 2 : 1, "contents");
	}
	FAIL_IF(h.other, "%d messages of another kind", h.other);
	SYS(write(stop[1], "x", 1));
	pthread_join(h.thread, NULL);
	return KSFT_PASS;
}

static int sync_after(const struct layout *l, const char *mode)
{
	return uffd_sync(l, false, false);
}

static int sync_before(const struct layout *l, const char *mode)
{
	return uffd_sync(l, true, false);
}

static int sync_all(const struct layout *l, const char *mode)
{
	return uffd_sync(l, false, true);
}

/* Armed, but nothing is protected: writes cost what they cost, and are right */
static int uffd_unprotected(const struct layout *l, const char *mode)
{
	struct region r;
	int fd = uffd_open(UFFD_FEATURE_PAGEFAULT_FLAG_WP);

	if (fd < 0)
		return skip("kernel has no userfaultfd write-protection");
	NEED(region_get(&r, l, FEW(l)));
	SYS(uffd_register(fd, &r, UFFDIO_REGISTER_MODE_WP));
	SYS(uffd_wp(fd, r.mem, r.size, true));
	NEED(fork_and_exit());
	SYS(uffd_wp(fd, r.mem, r.size, false));
	stamp_range(r.mem, 0, r.pages, 1);
	FAIL_STAMP(r.mem, 0, r.pages, 1, "contents");
	/* Protected again: no page has kept a way around it. */
	SYS(uffd_wp(fd, r.mem, r.size, true));
	for (int i = 0; i < r.pages; i++)
		FAIL_IF(!(pm_entry(r.mem + i * PAGE) & PM_UFFD_WP),
			"page %d is not protected", i);
	return KSFT_PASS;
}

/* --- userfaultfd, asynchronous, and PAGEMAP_SCAN -------------------------- */

static int scan(struct region *r, uint64_t flags, uint8_t *written)
{
	static struct page_region vec[3 * 512];
	struct pm_scan_arg arg = {
		.size = sizeof(arg),
		.flags = flags,
		.start = (uintptr_t)r->mem,
		.end = (uintptr_t)r->mem + r->size,
		.vec = (uintptr_t)vec,
		.vec_len = ARRAY_SIZE(vec),
		.category_mask = PAGE_IS_WRITTEN,
		.return_mask = PAGE_IS_WRITTEN,
	};
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC), n;

	n = ioctl(fd, PAGEMAP_SCAN, &arg);
	close(fd);
	memset(written, 0, r->pages);
	for (int i = 0; i < n; i++)
		for (uint64_t a = vec[i].start; a < vec[i].end; a += PAGE)
			written[(a - arg.start) / PAGE] = 1;
	return n < 0 ? -1 : 0;
}

static int uffd_async(const struct layout *l, bool before)
{
	static uint8_t written[3 * 512];
	struct region r;
	int fd = uffd_open(UFFD_FEATURE_WP_ASYNC | UFFD_FEATURE_WP_UNPOPULATED);
	int k;

	if (fd < 0)
		return skip("kernel has no UFFD_FEATURE_WP_ASYNC");
	NEED(region_get(&r, l, FEW(l)));
	SYS(uffd_register(fd, &r, UFFDIO_REGISTER_MODE_WP));
	if (!before)
		NEED(fork_and_exit());
	SYS(scan(&r, PM_SCAN_WP_MATCHING | PM_SCAN_CHECK_WPASYNC, written));
	if (before)
		NEED(fork_and_exit());
	SYS(scan(&r, 0, written));
	for (int i = 0; i < r.pages; i++)
		FAIL_IF(written[i], "page %d counts as written, but nothing was", i);

	/* One store: this page and no other. */
	k = r.fpages / 2;
	stamp_page(r.mem + k * PAGE, k, 1);
	SYS(scan(&r, 0, written));
	for (int i = 0; i < r.pages; i++)
		FAIL_IF(written[i] != (i == k), "page %d: written %d after a store to page %d",
			i, written[i], k);

	/* The chosen ones, then protected again, then the others. */
	for (int i = 0; i < r.pages; i++)
		if (chosen(i, r.pages))
			stamp_page(r.mem + i * PAGE, i, 1);
	SYS(scan(&r, PM_SCAN_WP_MATCHING, written));
	for (int i = 0; i < r.pages; i++)
		FAIL_IF(written[i] != (i == k || chosen(i, r.pages)),
			"page %d: written %d", i, written[i]);
	NEED(fork_and_exit());
	for (int i = 0; i < r.pages; i++)
		if (!chosen(i, r.pages))
			stamp_page(r.mem + i * PAGE, i, 2);
	SYS(scan(&r, 0, written));
	for (int i = 0; i < r.pages; i++) {
		FAIL_IF(written[i] != !chosen(i, r.pages), "page %d: written %d", i,
			written[i]);
		FAIL_STAMP(r.mem + i * PAGE, i, 1, chosen(i, r.pages) ? 1 : 2, "contents");
	}
	return KSFT_PASS;
}

static int async_after(const struct layout *l, const char *mode)
{
	return uffd_async(l, false);
}

static int async_before(const struct layout *l, const char *mode)
{
	return uffd_async(l, true);
}

/*
 * A read-only pin of a protected page makes it exclusive and leaves it
 * protected, and all others with it.
 */
static int uffd_pin(const struct layout *l, const char *mode)
{
	static uint8_t written[3 * 512];
	struct pin_longterm_test args = { .size = PAGE };
	int fd = uffd_open(UFFD_FEATURE_WP_ASYNC | UFFD_FEATURE_WP_UNPOPULATED);
	int gup = open("/sys/kernel/debug/gup_test", O_RDWR | O_CLOEXEC);
	struct region r;

	if (fd < 0)
		return skip("kernel has no UFFD_FEATURE_WP_ASYNC");
	if (gup < 0)
		return skip("no /sys/kernel/debug/gup_test (CONFIG_GUP_TEST)");
	NEED(region_get(&r, l, 1));
	SYS(uffd_register(fd, &r, UFFDIO_REGISTER_MODE_WP));
	NEED(fork_and_exit());
	SYS(scan(&r, PM_SCAN_WP_MATCHING | PM_SCAN_CHECK_WPASYNC, written));
	args.addr = (uintptr_t)(r.mem + odd_page(&r) * PAGE);
	SYS(ioctl(gup, PIN_LONGTERM_TEST_START, &args));
	for (int i = 0; i < r.pages; i++)
		if (chosen(i, r.pages))
			stamp_page(r.mem + i * PAGE, i, 1);
	SYS(scan(&r, 0, written));
	for (int i = 0; i < r.pages; i++)
		FAIL_IF(written[i] != chosen(i, r.pages), "page %d: written %d", i,
			written[i]);
	SYS(ioctl(gup, PIN_LONGTERM_TEST_STOP));
	return KSFT_PASS;
}

/* --- userfaultfd read-write protection ------------------------------------ */

#ifdef UFFDIO_RWPROTECT
static int rwp_one(int fd, char *addr, bool protect)
{
	struct uffdio_rwprotect rwp = {
		.range = { (uintptr_t)addr, PAGE },
		.mode = protect ? UFFDIO_RWPROTECT_MODE_RWP : 0,
	};

	return ioctl(fd, UFFDIO_RWPROTECT, &rwp);
}

/* Pages without access (protnone) amid those with. */
static int uffd_rwp(const struct layout *l, const char *mode)
{
	struct region r;
	int fd = uffd_open(UFFD_FEATURE_RWP | UFFD_FEATURE_RWP_ASYNC);

	if (fd < 0)
		return skip("kernel has no UFFD_FEATURE_RWP");
	NEED(region_get(&r, l, FEW(l)));
	SYS(uffd_register(fd, &r, UFFDIO_REGISTER_MODE_RWP));
	NEED(fork_and_exit());
	for (int i = 0; i < r.pages; i++)
		if (chosen(i, r.pages))
			SYS(rwp_one(fd, r.mem + i * PAGE, true));
	for (int i = 0; i < r.pages; i++)
		if (!chosen(i, r.pages))
			stamp_page(r.mem + i * PAGE, i, 1);
	for (int i = 0; i < r.pages; i++)
		FAIL_IF(!!(pm_entry(r.mem + i * PAGE) & PM_UFFD_WP) !=
			chosen(i, r.pages), "page %d: protection changed", i);
	for (int i = 0; i < r.pages; i++) {
		if (!chosen(i, r.pages))
			continue;
		FAIL_IF(!store_faults(r.mem + i * PAGE, 1),
			"page %d: access went unseen", i);
		stamp_page(r.mem + i * PAGE, i, 2);
	}
	for (int i = 0; i < r.pages; i++) {
		FAIL_IF(pm_entry(r.mem + i * PAGE) & PM_UFFD_WP, "page %d", i);
		FAIL_STAMP(r.mem + i * PAGE, i, 1, chosen(i, r.pages) ? 2 : 1, "contents");
	}
	return KSFT_PASS;
}
#else
static int uffd_rwp(const struct layout *l, const char *mode)
{
	return skip("built without UFFDIO_RWPROTECT");
}
#endif

/* --- soft-dirty ----------------------------------------------------------- */

static bool soft_dirty(const char *addr)
{
	return pm_entry(addr) & PM_SOFT_DIRTY;
}

static int clear_soft_dirty(struct region *r)
{
	SYS(-!!file_write("/proc/self/clear_refs", "4"));
	if (soft_dirty(r->mem))
		return skip("kernel does not track soft-dirty pages");
	for (int i = 0; i < r->pages; i++)
		FAIL_IF(soft_dirty(r->mem + i * PAGE), "page %d stayed soft-dirty", i);
	return KSFT_PASS;
}

enum sd { SD_AFTER, SD_BEFORE, SD_NO_FORK };

static int soft_dirty_pages(const struct layout *l, enum sd when)
{
	struct region r;
	int k;

	NEED(region_get(&r, l, FEW(l)));
	if (when == SD_AFTER)
		NEED(fork_and_exit());
	NEED(clear_soft_dirty(&r));
	if (when == SD_BEFORE)
		NEED(fork_and_exit());

	k = r.fpages / 2;
	stamp_page(r.mem + k * PAGE, k, 1);
	for (int i = 0; i < r.pages; i++)
		FAIL_IF(soft_dirty(r.mem + i * PAGE) != (i == k),
			"page %d: soft-dirty %d after a store to page %d", i,
			soft_dirty(r.mem + i * PAGE), k);
	for (int i = 0; i < r.pages; i++)
		if (chosen(i, r.pages))
			stamp_page(r.mem + i * PAGE, i, 1);
	for (int i = 0; i < r.pages; i++)
		FAIL_IF(soft_dirty(r.mem + i * PAGE) != (i == k || chosen(i, r.pages)),
			"page %d: soft-dirty %d", i, soft_dirty(r.mem + i * PAGE));

	NEED(clear_soft_dirty(&r));
	for (int i = 0; i < r.pages; i++) {
		stamp_page(r.mem + i * PAGE, i, 2);
		FAIL_IF(!soft_dirty(r.mem + i * PAGE), "page %d: write went unseen", i);
		if (i + 1 < r.pages)
			FAIL_IF(soft_dirty(r.mem + (i + 1) * PAGE),
				"page %d: not written, but soft-dirty", i + 1);
	}
	FAIL_STAMP(r.mem, 0, r.pages, 2, "contents");
	return KSFT_PASS;
}

static int soft_dirty_after(const struct layout *l, const char *mode)
{
	return soft_dirty_pages(l, SD_AFTER);
}

static int soft_dirty_before(const struct layout *l, const char *mode)
{
	return soft_dirty_pages(l, SD_BEFORE);
}

static int soft_dirty_no_fork(const struct layout *l, const char *mode)
{
	return soft_dirty_pages(l, SD_NO_FORK);
}

/*
 * One page of the folio is exclusive but write-protected, because it has not
 * been written since soft-dirty was cleared; all others are shared with a
 * child. A write to the one takes the short way (it is exclusive) and must not
 * be taken as leave to write to the others.
 */
static int lone_exclusive_page(const struct layout *l, const char *mode)
{
	char *start, *end;
	struct region r;
	uint64_t pfn;
	struct peer p;
	int k;

	NEED(region_get(&r, l, 1));
	k = r.fpages / 2 + (r.fpages > 16 ? 5 : 0);
	pfn = pm_pfn(r.mem + k * PAGE);
	NEED(clear_soft_dirty(&r));
	for (int i = 0; i < r.pages; i++)
		if (i != k)
			stamp_page(r.mem + i * PAGE, i, 1);
	SYS(madvise(r.mem + k * PAGE, PAGE, MADV_DONTFORK));
	NEED(peer_fork(&p));
	SYS(madvise(r.mem + k * PAGE, PAGE, MADV_DOFORK));
	FAIL_IF(!vma_range(r.mem, &start, &end) || start > r.mem ||
		end < r.mem + r.size, "VMAs did not merge again");

	stamp_page(r.mem + k * PAGE, k, 2);
	FAIL_IF(pm_pfn(r.mem + k * PAGE) != pfn, "exclusive page was copied");
	for (int i = 0; i < r.pages; i++)
		if (i != k)
			stamp_page(r.mem + i * PAGE, i, 3);
	for (int i = 0; i < r.pages; i++)
		if (i != k)
			FAIL_IF(!peer_stamped(&p, r.mem + i * PAGE, i, 1, 1),
				"child sees the parent's writes");
	for (int i = 0; i < r.pages; i++)
		FAIL_STAMP(r.mem + i * PAGE, i, 1, i == k ? 2 : 3, "contents");
	return KSFT_PASS;
}

static const struct test_case cases[] = {
	{ "userfaultfd-wp of some pages after fork: one message for each first write",
	  sync_after, ON_LARGE | ON_PMD },
	{ "userfaultfd-wp of some pages before fork: one message for each first write",
	  sync_before, ON_LARGE | ON_PMD },
	{ "userfaultfd-wp of all pages: one message for each first write",
	  sync_all, ON_LARGE | ON_PMD },
	{ "userfaultfd-wp taken back before the writes, then set again",
	  uffd_unprotected, ON_LARGE | ON_PMD },
	{ "Asynchronous userfaultfd-wp after fork: written pages, and only they",
	  async_after, ON_LARGE | ON_PMD },
	{ "Asynchronous userfaultfd-wp before fork: written pages, and only they",
	  async_before, ON_LARGE | ON_PMD },
	{ "Asynchronous userfaultfd-wp, and a read-only pin of a protected page",
	  uffd_pin, ON_LARGE },
	{ "Pages that userfaultfd made inaccessible amid others stay so",
	  uffd_rwp, ON_LARGE | ON_PMD },
	{ "Soft-dirty cleared after fork: written pages, and only they",
	  soft_dirty_after, ON_LARGE },
	{ "Soft-dirty cleared before fork: written pages, and only they",
	  soft_dirty_before, ON_LARGE },
	{ "Soft-dirty cleared without a fork: written pages, and only they",
	  soft_dirty_no_fork, ON_LARGE },
	{ "Write-protected exclusive page in a folio shared with a child",
	  lone_exclusive_page, ON_LARGE },
};

int main(void)
{
	run_cases(cases, ARRAY_SIZE(cases), "wp_reuse");
}

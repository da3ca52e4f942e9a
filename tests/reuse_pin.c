// SPDX-License-Identifier: GPL-2.0
/*
 * Extra references on a large folio, by vmsplice, by a long-term pin of
 * gup_test and by a fixed buffer of io_uring, taken before and after fork() in
 * parent and child. What is pinned stays one with what the process sees;
 * nobody sees another's later writes. Holds on any kernel.
 */
#include "common.h"

#include <sys/syscall.h>
#include <sys/uio.h>
#include <linux/io_uring.h>

#include <mm/gup_test.h>

#define GUP_TEST_FILE "/sys/kernel/debug/gup_test"

/* --- vmsplice ------------------------------------------------------------- */

struct spliced {
	int fd[2];
};

static int splice_pages(struct spliced *s, char *addr, int n)
{
	struct iovec iov = { addr, n * PAGE };

	SYS(pipe(s->fd));
	SYS(fcntl(s->fd[1], F_SETPIPE_SZ, 1 << 20));
	FAIL_IF(vmsplice(s->fd[1], &iov, 1, 0) != (ssize_t)(n * PAGE), "vmsplice: %s",
		strerror(errno));
	return KSFT_PASS;
}

static int spliced_is(struct spliced *s, unsigned int page, int n,
		      unsigned int gen)
{
	char *buf = mmap_anon(NULL, n * PAGE, PROT_READ | PROT_WRITE);

	FAIL_IF(!buf, "mmap");
	for (size_t off = 0; off < n * PAGE; ) {
		ssize_t got = read(s->fd[0], buf + off, n * PAGE - off);

		FAIL_IF(got <= 0, "read from pipe");
		off += got;
	}
	FAIL_STAMP(buf, page, n, gen, "pipe has other contents");
	munmap(buf, n * PAGE);
	return KSFT_PASS;
}

/* The child has pages in a pipe and no longer maps them; the parent writes. */
static int vmsplice_in_child(const struct layout *l, const char *mode)
{
	struct region r;
	struct peer p;
	int k, n;

	NEED(region_get(&r, l, 1));
	k = odd_page(&r);
	n = r.fpages >= 16 ? 3 : 1;
	NEED(peer_fork(&p));
	FAIL_IF(!peer_splice(&p, r.mem + k * PAGE, n), "child's vmsplice");
	FAIL_IF(!peer_munmap(&p, r.mem, r.size), "child");
	stamp_page(r.mem + (k - 1) * PAGE, k - 1, 1);
	stamp_range(r.mem, 0, r.pages, 1);
	FAIL_IF(!peer_spliced(&p, k, n, 0), "child sees the parent's writes");
	FAIL_STAMP(r.mem, 0, r.pages, 1, "parent");
	FAIL_IF(!peer_quit(&p), "child");
	NEED(fork_and_exit());
	stamp_range(r.mem, 0, r.pages, 2);
	FAIL_STAMP(r.mem, 0, r.pages, 2, "parent");
	return KSFT_PASS;
}

/*
 * The parent has a page in a pipe, before or after the fork; the child writes
 * while the parent no longer maps it.
 */
static int vmsplice_in_parent(const struct layout *l, bool before)
{
	struct spliced s;
	struct region r;
	struct peer p;
	int k, n;

	NEED(region_get(&r, l, 1));
	k = odd_page(&r);
	n = r.fpages >= 16 ? 3 : 1;
	if (before)
		NEED(splice_pages(&s, r.mem + k * PAGE, n));
	NEED(peer_fork(&p));
	if (!before)
		NEED(splice_pages(&s, r.mem + k * PAGE, n));
	SYS(munmap(r.mem, r.size));
	FAIL_IF(!peer_stamp(&p, r.mem + (k - 1) * PAGE, k - 1, 1, 1), "child");
	FAIL_IF(!peer_stamp(&p, r.mem, 0, r.pages, 1), "child");
	FAIL_IF(!peer_stamped(&p, r.mem, 0, r.pages, 1), "child lost its writes");
	NEED(spliced_is(&s, k, n, 0));
	return KSFT_PASS;
}

static int vmsplice_before(const struct layout *l, const char *mode)
{
	return vmsplice_in_parent(l, true);
}

static int vmsplice_after(const struct layout *l, const char *mode)
{
	return vmsplice_in_parent(l, false);
}

/*
 * A reference that is not of a mapping, on the folio of a process that is
 * alone with it: whoever holds it must not see what is written later through
 * pages that the fault made writable by the way. The pipe of the child has
 * been handed on to the parent, so that only the reference is left.
 */
static int vmsplice_child_gone(const struct layout *l, const char *mode)
{
	struct spliced s;
	struct region r;
	pid_t pid;
	int k, status;

	NEED(region_get(&r, l, 1));
	k = odd_page(&r);
	SYS(pipe(s.fd));
	pid = fork_child();
	FAIL_IF(pid < 0, "fork");
	if (!pid) {
		struct iovec iov = { r.mem + k * PAGE, PAGE };

		_exit(vmsplice(s.fd[1], &iov, 1, 0) != (ssize_t)PAGE);
	}
	FAIL_IF(waitpid(pid, &status, 0) != pid || status, "child's vmsplice");
	stamp_page(r.mem + (k - 1) * PAGE, k - 1, 1);
	stamp_page(r.mem + k * PAGE, k, 1);
	stamp_range(r.mem, 0, r.pages, 1);
	NEED(spliced_is(&s, k, 1, 0));
	FAIL_STAMP(r.mem, 0, r.pages, 1, "parent");
	/* The reference is gone with the pipe's contents. */
	stamp_range(r.mem, 0, r.pages, 2);
	FAIL_STAMP(r.mem, 0, r.pages, 2, "parent");
	return KSFT_PASS;
}

/* --- gup_test: long-term pins ---------------------------------------------- */

static int pin_start(int *fd, char *addr, size_t size, int flags)
{
	struct pin_longterm_test args = {
		.addr = (uintptr_t)addr, .size = size, .flags = flags,
	};

	*fd = open(GUP_TEST_FILE, O_RDWR | O_CLOEXEC);
	if (*fd < 0)
		return skip("no " GUP_TEST_FILE " (CONFIG_GUP_TEST): %s",
			    strerror(errno));
	SYS(ioctl(*fd, PIN_LONGTERM_TEST_START, &args));
	return KSFT_PASS;
}

/* What the kernel sees through the pin is what the process sees. */
static int pin_is(int fd, const char *addr, int n)
{
	char *buf = mmap_anon(NULL, n * PAGE, PROT_READ | PROT_WRITE);
	__u64 val = (uintptr_t)buf;

	FAIL_IF(!buf, "mmap");
	memset(buf, 0, n * PAGE);
	SYS(ioctl(fd, PIN_LONGTERM_TEST_READ, &val));
	for (int i = 0; i < n; i++)
		FAIL_IF(memcmp(buf + i * PAGE, addr + i * PAGE, PAGE),
			"page %d of the pin is not what the process sees", i);
	munmap(buf, n * PAGE);
	return KSFT_PASS;
}

static int pin_stop(int fd)
{
	SYS(ioctl(fd, PIN_LONGTERM_TEST_STOP));
	close(fd);
	return KSFT_PASS;
}

/* Pin some pages before the fork; the child lives. */
static int pin_before_fork(const struct layout *l, int flags)
{
	struct region r;
	uint64_t pfn;
	struct peer p;
	int k, fd;

	NEED(region_get(&r, l, 1));
	k = odd_page(&r);
	pfn = pm_pfn(r.mem + k * PAGE);
	NEED(pin_start(&fd, r.mem + k * PAGE, PAGE, flags));
	NEED(peer_fork(&p));
	stamp_page(r.mem + k * PAGE, k, 1);
	NEED(pin_is(fd, r.mem + k * PAGE, 1));
	stamp_page(r.mem + (k + 1) * PAGE % r.size, (k + 1) % r.pages, 1);
	stamp_range(r.mem, 0, r.pages, 2);
	NEED(pin_is(fd, r.mem + k * PAGE, 1));
	FAIL_IF(pm_pfn(r.mem + k * PAGE) != pfn, "pinned page was copied");
	FAIL_IF(!peer_stamped(&p, r.mem, 0, r.pages, 0), "child sees the parent's writes");
	FAIL_IF(!peer_stamp(&p, r.mem, 0, r.pages, 3), "child");
	NEED(pin_is(fd, r.mem + k * PAGE, 1));
	FAIL_STAMP(r.mem, 0, r.pages, 2, "parent sees the child's writes");
	FAIL_IF(!peer_quit(&p), "child");
	stamp_range(r.mem, 0, r.pages, 4);
	NEED(pin_is(fd, r.mem + k * PAGE, 1));
	NEED(pin_stop(fd));
	FAIL_STAMP(r.mem, 0, r.pages, 4, "parent");
	return KSFT_PASS;
}

static int pin_ro_before(const struct layout *l, const char *mode)
{
	return pin_before_fork(l, 0);
}

static int pin_rw_before(const struct layout *l, const char *mode)
{
	return pin_before_fork(l, PIN_LONGTERM_TEST_FLAG_USE_WRITE);
}

/* Pin pages that are shared with a living child. */
static int pin_after_fork(const struct layout *l, int flags)
{
	struct region r;
	struct peer p;
	int k, n, fd;

	NEED(region_get(&r, l, 1));
	k = odd_page(&r);
	n = r.fpages >= 16 ? 3 : 1;
	NEED(peer_fork(&p));
	NEED(pin_start(&fd, r.mem + k * PAGE, n * PAGE, flags));
	stamp_range(r.mem + k * PAGE, k, n, 1);
	NEED(pin_is(fd, r.mem + k * PAGE, n));
	stamp_range(r.mem, 0, r.pages, 2);
	NEED(pin_is(fd, r.mem + k * PAGE, n));
	FAIL_IF(!peer_stamped(&p, r.mem, 0, r.pages, 0), "child sees the parent's writes");
	FAIL_IF(!peer_stamp(&p, r.mem, 0, r.pages, 3), "child");
	NEED(pin_is(fd, r.mem + k * PAGE, n));
	FAIL_STAMP(r.mem, 0, r.pages, 2, "parent sees the child's writes");
	NEED(pin_stop(fd));
	return KSFT_PASS;
}

static int pin_ro_shared(const struct layout *l, const char *mode)
{
	return pin_after_fork(l, 0);
}

static int pin_fast_shared(const struct layout *l, const char *mode)
{
	return pin_after_fork(l, PIN_LONGTERM_TEST_FLAG_USE_FAST);
}

static int pin_rw_shared(const struct layout *l, const char *mode)
{
	return pin_after_fork(l, PIN_LONGTERM_TEST_FLAG_USE_WRITE);
}

/* The child is gone, the PTEs are still read-only: pinned, then written. */
static int pin_unshared(const struct layout *l, int flags)
{
	struct region r;
	uint64_t pfn;
	int k, n, fd;

	NEED(region_get_unshared(&r, l, 1));
	k = odd_page(&r);
	n = r.fpages >= 16 ? 3 : 1;
	NEED(pin_start(&fd, r.mem + k * PAGE, n * PAGE, flags));
	pfn = pm_pfn(r.mem + k * PAGE);
	stamp_page(r.mem + (k - 1) * PAGE, k - 1, 1);
	stamp_range(r.mem + k * PAGE, k, n, 1);
	NEED(pin_is(fd, r.mem + k * PAGE, n));
	stamp_range(r.mem, 0, r.pages, 2);
	NEED(pin_is(fd, r.mem + k * PAGE, n));
	FAIL_IF(pm_pfn(r.mem + k * PAGE) != pfn, "pinned page was copied");
	FAIL_STAMP(r.mem, 0, r.pages, 2, "contents");
	NEED(pin_stop(fd));
	return KSFT_PASS;
}

static int pin_ro_unshared(const struct layout *l, const char *mode)
{
	return pin_unshared(l, 0);
}

static int pin_fast_unshared(const struct layout *l, const char *mode)
{
	return pin_unshared(l, PIN_LONGTERM_TEST_FLAG_USE_FAST);
}

/*
 * The first page's pin holds the folio. Stock can then prove no other page of it
 * exclusive, and copies each; see wp_reuse_unshare().
 */
static int pin_copies_nothing(const struct layout *l, const char *mode)
{
	struct region r;
	uint64_t *old;
	int fd;

	if (!mode || !strcmp(mode, "never"))
		return skip("copies all but the first page of a folio");
	NEED(region_get_unshared(&r, l, 2));
	old = malloc(r.pages * sizeof(*old));
	for (int i = 0; i < r.pages; i++)
		old[i] = pm_pfn(r.mem + i * PAGE);
	NEED(pin_start(&fd, r.mem, r.pages * PAGE, 0));
	for (int i = 0; i < r.pages; i++)
		FAIL_IF(pm_pfn(r.mem + i * PAGE) != old[i],
			"page %d was copied by the pin", i);
	stamp_range(r.mem, 0, r.pages, 1);
	for (int i = 0; i < r.pages; i++)
		FAIL_IF(pm_pfn(r.mem + i * PAGE) != old[i],
			"page %d was copied by a write", i);
	NEED(pin_is(fd, r.mem, r.pages));
	FAIL_STAMP(r.mem, 0, r.pages, 1, "contents");
	NEED(pin_stop(fd));
	return KSFT_PASS;
}

/* To read is not to write: a pin that reads makes no page writable. */
static int pin_only_reads(const struct layout *l, const char *mode)
{
	struct region r;
	int k, fd;

	NEED(region_get_unshared(&r, l, 1));
	k = odd_page(&r);
	NEED(pin_start(&fd, r.mem + k * PAGE, PAGE, 0));
	FAIL_IF(!store_faults(r.mem + (k - 1) * PAGE, stamp(k - 1, 0)),
		"page %d was writable after page %d was pinned to read", k - 1, k);
	NEED(pin_stop(fd));

	NEED(region_get_unshared(&r, l, 1));
	NEED(pin_start(&fd, r.mem + k * PAGE, PAGE, 0));
	FAIL_IF(!store_faults(r.mem + k * PAGE, stamp(k, 0)),
		"page pinned to read was writable");
	FAIL_STAMP(r.mem, 0, r.pages, 0, "contents");
	return pin_stop(fd);
}

/*
 * Pages that the fault of another one made writable: exclusive in every sense,
 * so that they are pinned as they are and a fork copies what is pinned.
 */
static int pin_neighbour(const struct layout *l, int flags)
{
	struct region r;
	uint64_t pfn;
	struct peer p;
	int k, fd;

	NEED(region_get_unshared(&r, l, 1));
	k = odd_page(&r);
	pfn = pm_pfn(r.mem + k * PAGE);
	stamp_page(r.mem + (k - 1) * PAGE, k - 1, 1);
	NEED(pin_start(&fd, r.mem + k * PAGE, PAGE, flags));
	FAIL_IF(pm_pfn(r.mem + k * PAGE) != pfn, "exclusive page was copied");
	stamp_page(r.mem + k * PAGE, k, 1);
	NEED(pin_is(fd, r.mem + k * PAGE, 1));
	NEED(peer_fork(&p));
	stamp_range(r.mem, 0, r.pages, 2);
	NEED(pin_is(fd, r.mem + k * PAGE, 1));
	FAIL_IF(pm_pfn(r.mem + k * PAGE) != pfn, "pinned page was copied");
	FAIL_IF(!peer_stamped(&p, r.mem + (k - 1) * PAGE, k - 1, 2, 1), "child");
	FAIL_IF(!peer_stamp(&p, r.mem, 0, r.pages, 3), "child");
	NEED(pin_is(fd, r.mem + k * PAGE, 1));
	FAIL_STAMP(r.mem, 0, r.pages, 2, "parent sees the child's writes");
	NEED(pin_stop(fd));
	return KSFT_PASS;
}

static int pin_ro_neighbour(const struct layout *l, const char *mode)
{
	return pin_neighbour(l, 0);
}

static int pin_fast_neighbour(const struct layout *l, const char *mode)
{
	return pin_neighbour(l, PIN_LONGTERM_TEST_FLAG_USE_FAST);
}

static int pin_rw_neighbour(const struct layout *l, const char *mode)
{
	return pin_neighbour(l, PIN_LONGTERM_TEST_FLAG_USE_WRITE);
}

/*
 * A read-only pin makes a page exclusive without making it writable; fork then
 * gives the child a copy of this page and shares all others. A write to the
 * page finds it exclusive, while the folio is shared.
 */
static int pin_lone_exclusive(const struct layout *l, const char *mode)
{
	struct region r;
	uint64_t pfn;
	struct peer p;
	int k, fd;

	NEED(region_get_unshared(&r, l, 1));
	k = odd_page(&r);
	NEED(pin_start(&fd, r.mem + k * PAGE, PAGE, 0));
	NEED(peer_fork(&p));
	pfn = pm_pfn(r.mem + k * PAGE);
	stamp_page(r.mem + k * PAGE, k, 1);
	FAIL_IF(pm_pfn(r.mem + k * PAGE) != pfn, "pinned page was copied");
	NEED(pin_is(fd, r.mem + k * PAGE, 1));
	stamp_range(r.mem, 0, r.pages, 2);
	NEED(pin_is(fd, r.mem + k * PAGE, 1));
	FAIL_IF(!peer_stamped(&p, r.mem, 0, r.pages, 0), "child sees the parent's writes");
	FAIL_IF(!peer_stamp(&p, r.mem, 0, r.pages, 3), "child");
	FAIL_STAMP(r.mem, 0, r.pages, 2, "parent sees the child's writes");
	NEED(pin_is(fd, r.mem + k * PAGE, 1));
	NEED(pin_stop(fd));
	return KSFT_PASS;
}

/*
 * Some pages of a folio are exclusive because they were pinned once, all
 * others are held by a pipe: a write to the exclusive ones must not make the
 * others writable, though nobody else maps the folio.
 */
static int pin_beside_reference(const struct layout *l, const char *mode)
{
	struct spliced s;
	struct region r;
	pid_t pid;
	int k, fd, status, other;

	NEED(region_get(&r, l, 1));
	k = odd_page(&r);
	other = k - 1;
	NEED(fork_and_exit());
	NEED(pin_start(&fd, r.mem + k * PAGE, PAGE, 0));
	SYS(pipe(s.fd));
	/* The child leaves a reference behind: its own view of "other". */
	pid = fork_child();
	FAIL_IF(pid < 0, "fork");
	if (!pid) {
		struct iovec iov = { r.mem + other * PAGE, PAGE };

		_exit(vmsplice(s.fd[1], &iov, 1, 0) != (ssize_t)PAGE);
	}
	FAIL_IF(waitpid(pid, &status, 0) != pid || status, "child's vmsplice");
	NEED(pin_is(fd, r.mem + k * PAGE, 1));
	stamp_page(r.mem + k * PAGE, k, 1);
	stamp_page(r.mem + other * PAGE, other, 1);
	stamp_range(r.mem, 0, r.pages, 1);
	NEED(pin_is(fd, r.mem + k * PAGE, 1));
	NEED(spliced_is(&s, other, 1, 0));
	FAIL_STAMP(r.mem, 0, r.pages, 1, "parent");
	NEED(pin_stop(fd));
	return KSFT_PASS;
}

/* --- io_uring: a fixed buffer ---------------------------------------------- */

struct ring {
	int fd;
	void *sq, *cq;
	struct io_uring_sqe *sqes;
	struct io_uring_params p;
};

static int ring_open(struct ring *g, char *addr, size_t size)
{
	struct iovec iov = { addr, size };

	memset(g, 0, sizeof(*g));
	g->fd = syscall(SYS_io_uring_setup, 4, &g->p);
	if (g->fd < 0)
		return skip("no io_uring: %s", strerror(errno));
	g->sq = mmap(NULL, g->p.sq_off.array + g->p.sq_entries * 4,
		     PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, g->fd,
		     IORING_OFF_SQ_RING);
	g->cq = mmap(NULL, g->p.cq_off.cqes +
		     g->p.cq_entries * sizeof(struct io_uring_cqe),
		     PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, g->fd,
		     IORING_OFF_CQ_RING);
	g->sqes = mmap(NULL, g->p.sq_entries * sizeof(struct io_uring_sqe),
		       PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, g->fd,
		       IORING_OFF_SQES);
	FAIL_IF(g->sq == MAP_FAILED || g->cq == MAP_FAILED ||
		g->sqes == MAP_FAILED, "mmap of the ring");
	if (syscall(SYS_io_uring_register, g->fd, IORING_REGISTER_BUFFERS, &iov, 1))
		return skip("no fixed buffers: %s", strerror(errno));
	return KSFT_PASS;
}

/* Write the buffer to a pipe, or read it from one, as the kernel sees it. */
static int ring_io(struct ring *g, int op, int fd, char *addr, unsigned int len)
{
	unsigned int *tail = g->sq + g->p.sq_off.tail;
	unsigned int *mask = g->sq + g->p.sq_off.ring_mask;
	unsigned int *array = g->sq + g->p.sq_off.array;
	unsigned int *chead = g->cq + g->p.cq_off.head;
	unsigned int *cmask = g->cq + g->p.cq_off.ring_mask;
	struct io_uring_cqe *cqes = g->cq + g->p.cq_off.cqes;
	unsigned int i = *tail & *mask;

	memset(&g->sqes[i], 0, sizeof(g->sqes[i]));
	g->sqes[i].opcode = op;
	g->sqes[i].fd = fd;
	g->sqes[i].addr = (uintptr_t)addr;
	g->sqes[i].len = len;
	g->sqes[i].buf_index = 0;
	array[i] = i;
	__atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
	SYS(syscall(SYS_io_uring_enter, g->fd, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0));
	i = *chead & *cmask;
	FAIL_IF(cqes[i].res != (int)len, "io_uring: %d", cqes[i].res);
	__atomic_store_n(chead, *chead + 1, __ATOMIC_RELEASE);
	return KSFT_PASS;
}

/* What the fixed buffer has of a page is what the process sees, both ways. */
static int buffer_is(struct ring *g, char *addr, unsigned int page,
		     unsigned int gen)
{
	static char buf[PAGE];
	int fd[2];

	SYS(pipe(fd));
	NEED(ring_io(g, IORING_OP_WRITE_FIXED, fd[1], addr, PAGE));
	FAIL_IF(read(fd[0], buf, PAGE) != (ssize_t)PAGE, "pipe");
	FAIL_STAMP(buf, page, 1, gen, "buffer is not what the process sees");
	close(fd[0]);
	close(fd[1]);
	return KSFT_PASS;
}

static int buffer_take(struct ring *g, char *addr, unsigned int page,
		       unsigned int gen)
{
	static char buf[PAGE];
	int fd[2];

	memcpy(buf, addr, PAGE);
	stamp_page(buf, page, gen);
	SYS(pipe(fd));
	SYS(write(fd[1], buf, PAGE));
	NEED(ring_io(g, IORING_OP_READ_FIXED, fd[0], addr, PAGE));
	FAIL_STAMP(addr, page, 1, gen, "process does not see what the buffer took");
	close(fd[0]);
	close(fd[1]);
	return KSFT_PASS;
}

/* @when: 0 before the fork, 1 with a living child, 2 when it is gone */
static int uring_buffer(const struct layout *l, int when)
{
	struct region r;
	struct ring g;
	struct peer p;
	int k;

	NEED(region_get(&r, l, 1));
	k = odd_page(&r);
	if (when == 0)
		NEED(ring_open(&g, r.mem + k * PAGE, PAGE));
	NEED(peer_fork(&p));
	if (when == 2)
		FAIL_IF(!peer_quit(&p), "child");
	if (when != 0)
		NEED(ring_open(&g, r.mem + k * PAGE, PAGE));
	stamp_page(r.mem + (k - 1) * PAGE, k - 1, 1);
	NEED(buffer_is(&g, r.mem + k * PAGE, k, 0));
	stamp_page(r.mem + k * PAGE, k, 1);
	NEED(buffer_is(&g, r.mem + k * PAGE, k, 1));
	stamp_range(r.mem, 0, r.pages, 2);
	NEED(buffer_is(&g, r.mem + k * PAGE, k, 2));
	NEED(buffer_take(&g, r.mem + k * PAGE, k, 3));
	if (when != 2) {
		FAIL_IF(!peer_stamped(&p, r.mem, 0, r.pages, 0), "child sees the parent's writes");
		FAIL_IF(!peer_stamp(&p, r.mem, 0, r.pages, 4), "child");
		NEED(buffer_is(&g, r.mem + k * PAGE, k, 3));
		FAIL_IF(!peer_quit(&p), "child");
	}
	NEED(fork_and_exit());
	stamp_range(r.mem, 0, r.pages, 5);
	NEED(buffer_is(&g, r.mem + k * PAGE, k, 5));
	NEED(buffer_take(&g, r.mem + k * PAGE, k, 6));
	for (int i = 0; i < r.pages; i++)
		FAIL_STAMP(r.mem + i * PAGE, i, 1, i == k ? 6 : 5, "contents");
	return KSFT_PASS;
}

static int uring_before(const struct layout *l, const char *mode)
{
	return uring_buffer(l, 0);
}

static int uring_shared(const struct layout *l, const char *mode)
{
	return uring_buffer(l, 1);
}

static int uring_unshared(const struct layout *l, const char *mode)
{
	return uring_buffer(l, 2);
}

static const struct test_case cases[] = {
	{ "vmsplice and munmap in the child, parent writes",
	  vmsplice_in_child, ON_LARGE | ON_PMD },
	{ "vmsplice before fork, munmap in the parent, child writes",
	  vmsplice_before, ON_LARGE | ON_PMD },
	{ "vmsplice after fork, munmap in the parent, child writes",
	  vmsplice_after, ON_LARGE | ON_PMD },
	{ "vmsplice in a child that is gone, parent writes",
	  vmsplice_child_gone, ON_LARGE | ON_PMD },
	{ "Read-only pin before fork, child lives",
	  pin_ro_before, ON_LARGE | ON_PMD },
	{ "Writable pin before fork, child lives",
	  pin_rw_before, ON_LARGE | ON_PMD },
	{ "Read-only pin of pages shared with a child",
	  pin_ro_shared, ON_LARGE | ON_PMD },
	{ "Fast read-only pin of pages shared with a child",
	  pin_fast_shared, ON_LARGE | ON_PMD },
	{ "Writable pin of pages shared with a child",
	  pin_rw_shared, ON_LARGE | ON_PMD },
	{ "Read-only pin when the child is gone",
	  pin_ro_unshared, ON_LARGE | ON_PMD },
	{ "Fast read-only pin when the child is gone",
	  pin_fast_unshared, ON_LARGE | ON_PMD },
	{ "Read-only pin of whole folios copies nothing",
	  pin_copies_nothing, ON_LARGE },
	{ "Read-only pin makes no page writable",
	  pin_only_reads, ON_LARGE },
	{ "Read-only pin of a page that another one's fault made writable",
	  pin_ro_neighbour, ON_LARGE | ON_PMD },
	{ "Fast read-only pin of a page that another one's fault made writable",
	  pin_fast_neighbour, ON_LARGE | ON_PMD },
	{ "Writable pin of a page that another one's fault made writable",
	  pin_rw_neighbour, ON_LARGE | ON_PMD },
	{ "Pinned page exclusive, its folio shared with a second child",
	  pin_lone_exclusive, ON_LARGE },
	{ "Pinned page exclusive, its neighbour held by the pipe of a child gone",
	  pin_beside_reference, ON_LARGE },
	{ "io_uring fixed buffer registered before fork",
	  uring_before, ON_LARGE | ON_PMD },
	{ "io_uring fixed buffer registered with a child alive",
	  uring_shared, ON_LARGE | ON_PMD },
	{ "io_uring fixed buffer registered when the child is gone",
	  uring_unshared, ON_LARGE | ON_PMD },
};

int main(void)
{
	run_cases(cases, ARRAY_SIZE(cases), "wp_reuse");
}

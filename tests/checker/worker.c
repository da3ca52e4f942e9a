// SPDX-License-Identifier: GPL-2.0
/*
 * One process of the tree.  It waits for a command, does it, compares the memory
 * that the command touched with the model, and says what it saw.  The model was
 * brought up to date before the command came.
 */
#include "chk.h"

#include <sched.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <tools/include/uapi/linux/fs.h>

static int slot;
static struct cmd *C;
static int mem_fd = -1, pagemap_fd = -1, uffd_fd = -1;
static int pipes[NPIN][2];	/* + 1; 0: unused */
static sigjmp_buf escape;
static volatile sig_atomic_t guarded;
static unsigned char bounce[PINPAGES * PG] __attribute__((aligned(8)));

static void on_fault(int sig)
{
	if (guarded)
		siglongjmp(escape, 1);
	signal(sig, SIG_DFL);
	raise(sig);
}

static void __attribute__((format(printf, 2, 3))) fail(unsigned int page, const char *fmt, ...)
{
	va_list ap;

	if (C->fail)
		return;
	C->fail = true;
	C->failed_page = page;
	va_start(ap, fmt);
	vsnprintf(C->msg, sizeof(C->msg), fmt, ap);
	va_end(ap);
}

static int my_mem(void)
{
	if (mem_fd < 0)
		mem_fd = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
	return mem_fd;
}

static int my_pagemap(void)
{
	if (pagemap_fd < 0)
		pagemap_fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	return pagemap_fd;
}

/* A store; false: it faulted. */
static bool store(unsigned char *dst, const unsigned char *src, uint32_t len)
{
	if (sigsetjmp(escape, 0)) {
		guarded = 0;
		return false;
	}
	guarded = 1;
	if (len == 1)
		*(volatile unsigned char *)dst = *src;
	else if (len == 8)
		*(volatile uint64_t *)(void *)dst = *(const uint64_t *)(const void *)src;
	else
		memcpy(dst, src, len);
	guarded = 0;
	return true;
}

static bool can_load(unsigned int page)
{
	if (sigsetjmp(escape, 0)) {
		guarded = 0;
		return false;
	}
	guarded = 1;
	(void)*(volatile unsigned char *)ADDR(page);
	guarded = 0;
	return true;
}

static uint32_t first_diff(const unsigned char *a, const unsigned char *b)
{
	uint32_t i;

	for (i = 0; i < PG - 1 && a[i] == b[i]; i++)
		;
	return i;
}

/* got: the bytes of page i of process p.  written: a store came after MADV_FREE. */
static void compare(int p, unsigned int i, const unsigned char *got, bool written)
{
	struct mpage *m = &S->pr[p].pg[i];
	const unsigned char *want = c_ptr(pg_content(m));
	uint32_t d;

	if (same(got, want)) {
		if (written && m->alt != NOALT)
			m_resolve(m, false);
		return;
	}
	if (m->alt != NOALT && same(got, c_ptr(m->alt))) {
		m_resolve(m, true);
		return;
	}
	d = first_diff(got, want);
	if (!C->fail) {
		C->failed_off = d;
		C->want = want[d];
	}
	fail(i, "process %d page %u byte %u is 0x%02x, must be 0x%02x%s", p, i, d,
	     got[d], want[d], m->alt != NOALT ? " or what MADV_FREE left" : "");
}

/* Where memory is compared between kernels: what nobody wrote may not be there. */
static bool leave_unread(const struct mpage *m)
{
	return S->frugal && !m->sh && m->c == ZEROC;
}

static void check_page(unsigned int i, bool written)
{
	struct mpage *m = &S->pr[slot].pg[i];

	if (!(m->fl & F_MAPPED) || leave_unread(m))
		return;
	if (m->fl & F_R) {
		/* a fault here is unexpected, and the model says which page */
		if (!can_load(i))
			fail(i, "process %d page %u: SIGSEGV on a load that is allowed",
			     slot, i);
		else
			compare(slot, i, ADDR(i), written);
		return;
	}
	if (!S->has_force)
		return;
	if (pread(my_mem(), bounce, PG, (off_t)ADDR(i)) == (ssize_t)PG)
		compare(slot, i, bounce, written);
	else
		fail(i, "process %d page %u (flags %#x): /proc/self/mem: %m", slot, i, m->fl);
}

/*
 * Stock's clear_refs leaves a PTE that is on its way to another place, or whose folio
 * is being split, writable when it is back (7.3.4): the next write goes unseen.
 */
static bool sd_may_miss(int p)
{
	usleep(50000);	/* counted when it is done */
	return env_moves() != S->pr[p].sd_moves;
}

/* After a write: neither soft-dirty nor userfaultfd may have missed it. */
static void check_tracked(int fd, int p, const struct op *op, bool forced)
{
	static uint64_t pm[NPAGES];
	unsigned int k;

	if (pread(fd, pm, op->n * 8UL, (off_t)((unsigned long)ADDR(op->a) / PG * 8)) !=
	    (ssize_t)(op->n * 8UL))
		return;
	for (k = 0; k < op->n; k++) {
		unsigned int i = op->a + k;
		struct mpage *m = &S->pr[p].pg[i];

		if (!(m->fl & F_MAPPED) || write_geom(op, i).skip)
			continue;
		if (!(m->fl & F_W) && (!forced || !can_force(m)))
			continue;
		if (S->has_softdirty && !(m->fl & F_MERGE) && !(pm[k] & PM_SOFT_DIRTY) &&
		    !sd_may_miss(p))
			fail(i, "process %d page %u: written, not soft-dirty (pagemap %#lx)",
			     p, i, (unsigned long)pm[k]);
		if (!(m->fl & F_WPEXP))
			continue;
		if (S->pr[p].uffd_mode == 1)
			fail(i, "process %d page %u: written, userfaultfd not told", p, i);
		else if (pm[k] & PM_UFFD_WP)
			fail(i, "process %d page %u: written, still uffd-wp", p, i);
		m->fl &= (uint16_t)~F_WPEXP;
	}
}

static void do_write(const struct op *op, bool by_kernel)
{
	unsigned int k;

	for (k = 0; k < op->n; k++) {
		unsigned int i = op->a + write_order(op, k);
		struct mpage *m = &S->pr[slot].pg[i];
		struct geom g = write_geom(op, i);
		uint32_t c = pg_content(m);
		bool ok;

		if (g.skip)
			continue;
		if (by_kernel) {
			ok = pread(pool_fd, ADDR(i) + g.off, g.len,
				   (off_t)c * (off_t)PG + g.off) == (ssize_t)g.len;
		} else if (!(m->fl & F_W)) {
			unsigned char x = 0xee;

			ok = store(ADDR(i) + g.off, &x, 1);
		} else {
			ok = store(ADDR(i) + g.off, c_ptr(c) + g.off, g.len);
		}
		if (ok != !!(m->fl & F_W))
			fail(i, "process %d page %u: a write %s, the page is %s", slot, i,
			     ok ? "went through" : "failed",
			     m->fl & F_W ? "writable" : "not writable");
	}
	for (k = 0; k < op->n; k++)
		if (!write_geom(op, op->a + k).skip)
			check_page(op->a + k, S->pr[slot].pg[op->a + k].fl & F_W);
	check_tracked(my_pagemap(), slot, op, false);
}

static void do_mem_write(const struct op *op)
{
	unsigned int k;

	for (k = 0; k < op->n; k++) {
		unsigned int i = op->a + write_order(op, k);
		struct mpage *m = &S->pr[slot].pg[i];
		struct geom g = write_geom(op, i);
		bool may = can_force(m);

		if (g.skip)
			continue;
		if ((pwrite(my_mem(), c_ptr(pg_content(m)) + g.off, g.len,
			    (off_t)(ADDR(i) + g.off)) == (ssize_t)g.len) != may)
			fail(i, "process %d page %u: forced write %s", slot, i,
			     may ? "failed" : "went through");
		check_page(i, may);
		/* the force was for that write only */
		if (may && !(m->fl & F_W)) {
			unsigned char x = 0xee;

			if (store(ADDR(i), &x, 1))
				fail(i, "process %d page %u: writable after a forced write",
				     slot, i);
		}
	}
	check_tracked(my_pagemap(), slot, op, true);
}

static void do_pv(const struct op *op, bool write)
{
	pid_t pid = S->pr[op->q].pid;
	unsigned int k;
	char name[40];
	int fd;

	for (k = 0; k < op->n; k++) {
		unsigned int i = op->a + k;
		struct mpage *m = &S->pr[op->q].pg[i];
		struct geom g = write_geom(op, i);
		struct iovec loc = { c_ptr(pg_content(m)) + g.off, g.len };
		struct iovec rem = { ADDR(i) + g.off, g.len };
		bool may = m->fl & F_W;

		if (write && !g.skip &&
		    (process_vm_writev(pid, &loc, 1, &rem, 1, 0) == (ssize_t)g.len) != may)
			fail(i, "process_vm_writev of process %d page %u %s", op->q, i,
			     may ? "failed" : "went through");
		loc = (struct iovec){ bounce, PG };
		rem = (struct iovec){ ADDR(i), PG };
		may = m->fl & F_R;
		if (leave_unread(m))
			continue;
		if ((process_vm_readv(pid, &loc, 1, &rem, 1, 0) == (ssize_t)PG) != may)
			fail(i, "process_vm_readv of process %d page %u %s", op->q, i,
			     may ? "failed" : "went through");
		else if (may)
			compare(op->q, i, bounce, write && !g.skip && (m->fl & F_W));
	}
	if (!write)
		return;
	snprintf(name, sizeof(name), "/proc/%d/pagemap", pid);
	fd = open(name, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		check_tracked(fd, op->q, op, false);
		close(fd);
	}
}

static void do_read(const struct op *op)
{
	unsigned int k;

	for (k = 0; k < op->n; k++) {
		unsigned int i = op->a + write_order(op, k);
		struct mpage *m = &S->pr[slot].pg[i];

		if (m->fl & F_R)
			check_page(i, false);
		else if (can_load(i))
			fail(i, "process %d page %u: a load went through, it may not", slot, i);
	}
}

/* What /proc/self/maps says of the arena, against the model. */
static void check_maps(void)
{
	static char buf[512 * 1024];
	static unsigned char seen[NPAGES];
	size_t len = 0;
	ssize_t r;
	char *s;
	unsigned int i;
	int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);

	while ((r = read(fd, buf + len, sizeof(buf) - 1 - len)) > 0)
		len += (size_t)r;
	close(fd);
	buf[len] = 0;
	memset(seen, 0, sizeof(seen));
	for (s = buf; s && *s; s = strchr(s, '\n'), s = s ? s + 1 : s) {
		unsigned long b, e;
		char perm[5];

		if (sscanf(s, "%lx-%lx %4s", &b, &e, perm) != 3 || b < ARENA ||
		    e > ARENA + NPAGES * PG)
			continue;
		for (; b < e; b += PG)
			seen[(b - ARENA) / PG] = (unsigned char)(F_MAPPED |
				(perm[0] == 'r' ? F_R : 0) | (perm[1] == 'w' ? F_W : 0) |
				(perm[3] == 's' ? F_SHARED : 0));
	}
	C->h_perm = 0;
	for (i = 0; i < NPAGES; i++) {
		unsigned int want = S->pr[slot].pg[i].fl & (F_MAPPED | F_R | F_W | F_SHARED);

		C->h_perm = C->h_perm * 31 + seen[i];
		if (seen[i] != want)
			fail(i, "process %d page %u: permissions 0x%x, must be 0x%x",
			     slot, i, seen[i], want);
	}
}

static void get_mincore(unsigned int a, unsigned int n, unsigned char *vec)
{
	unsigned int i = a, run;

	memset(vec, 0xff, n);
	while (i < a + n) {
		run = m_clip(slot, i, a + n - i, F_MAPPED);
		if (run && mincore(ADDR(i), run * PG, vec + (i - a)))
			fail(i, "process %d page %u: mincore: %m", slot, i);
		i += run ? run : 1;
	}
}

/*
 * Compare [a, a + n) without changing it where that can be done: a page that is
 * not there must be one that may be zero; pages in swap are left there unless
 * touch says otherwise.
 */
static void check_range(unsigned int a, unsigned int n, bool touch)
{
	static uint64_t pm[NPAGES], pm2[NPAGES];
	static unsigned char vec[NPAGES];
	off_t off = (off_t)((unsigned long)ADDR(a) / PG * 8);
	unsigned int k;

	if (pread(my_pagemap(), pm, n * 8UL, off) != (ssize_t)(n * 8UL)) {
		memset(pm, 0xff, sizeof(pm));
		touch = true;
	}
	get_mincore(a, n, vec);
	if (pread(my_pagemap(), pm2, n * 8UL, off) != (ssize_t)(n * 8UL))
		memset(pm2, 0, sizeof(pm2));
	for (k = 0; k < n; k++) {
		unsigned int i = a + k;
		struct mpage *m = &S->pr[slot].pg[i];
		bool present = pm[k] & PM_PRESENT, swap = pm[k] & PM_SWAP;

		if (!(m->fl & F_MAPPED))
			continue;
		if (!((pm[k] ^ pm2[k]) & (PM_PRESENT | PM_SWAP)) && !swap &&
		    (present || !m->sh) && (vec[k] & 1) != present)
			fail(i, "process %d page %u: mincore says %u, pagemap %s", slot, i,
			     vec[k] & 1, present ? "present" : "none");
		if ((m->fl & F_WPEXP) && !(pm[k] & PM_UFFD_WP))
			fail(i, "process %d page %u: lost its uffd-wp bit unwritten", slot, i);
		/* Stock's khugepaged loses the bit in a VMA that is read-only (7.3.4). */
		if ((m->fl & F_SDW) && (m->fl & F_W) && S->has_softdirty && !(m->fl & F_MERGE) &&
		    m->alt == NOALT && !m->sh && !(pm[k] & PM_SOFT_DIRTY) &&
		    present && !same(c_ptr(m->c), c_ptr(ZEROC)) && !sd_may_miss(slot))
			fail(i, "process %d page %u: lost its soft-dirty bit", slot, i);
		if (touch || present) {
			check_page(i, false);
		} else if (!swap && !m->sh) {
			if (m->c == ZEROC || m->alt == ZEROC)
				continue;
			/* pagemap can miss a page on the move: the bytes decide */
			if (!same(c_ptr(m->c), c_ptr(ZEROC))) {
				if (S->unseen++ < 4)
					dprintf(1, "# process %d page %u: pagemap %#lx, then %#lx, mincore %u\n",
						slot, i, (unsigned long)pm[k],
						(unsigned long)pm2[k], vec[k]);
				check_page(i, false);
			}
		}
	}
}

static void do_digest(void)
{
	static unsigned char vec[NPAGES];
	unsigned int i;

	check_maps();
	get_mincore(0, NPAGES, vec);
	C->h_mincore = C->resident = 0;
	for (i = 0; i < NPAGES; i++) {
		C->h_mincore = C->h_mincore * 31 + (vec[i] & 1);
		C->resident += vec[i] == 1;
	}
}

static void drop_pin(unsigned int k)
{
	ring_drop((int)k);
	if (pipes[k][0]) {
		close(pipes[k][0] - 1);
		close(pipes[k][1] - 1);
		pipes[k][0] = pipes[k][1] = 0;
	}
}

static void drop_all(bool mine)
{
	unsigned int k;

	for (k = 0; k < NPIN; k++)
		drop_pin(k);
	if (uffd_fd >= 0)
		close(uffd_fd);
	uffd_fd = -1;
	if (mine)
		return;
	/* these two name the address space that opened them */
	if (mem_fd >= 0)
		close(mem_fd);
	if (pagemap_fd >= 0)
		close(pagemap_fd);
	mem_fd = pagemap_fd = -1;
}

static void do_splice(const struct op *op)
{
	struct iovec iov = { ADDR(op->a), op->n * PG };
	int fd[2];

	if (pipe2(fd, O_CLOEXEC)) {
		fail(op->a, "pipe: %m");
		return;
	}
	C->ret = vmsplice(fd[1], &iov, 1, 0);
	C->err = errno;
	pipes[C->arg][0] = fd[0] + 1;
	pipes[C->arg][1] = fd[1] + 1;
	if (C->ret != (int64_t)(op->n * PG))
		drop_pin(C->arg);
}

static void do_pin_read(unsigned int k)
{
	struct mpin *pin = &S->pin[k];
	size_t len = 0, want = pin->n * PG;
	unsigned int i, j;
	int r;

	if (pin->ring) {
		r = ring_io((int)k, false, pin->n);
		if (r || pread(scratch_fd, bounce, want, 0) != (ssize_t)want) {
			fail(0, "pin %u: io_uring write: %d", k, r);
			return;
		}
		for (i = 0; i < pin->n; i++)
			if (!same(bounce + i * PG, c_ptr(pin->cur[i]))) {
				uint32_t d = first_diff(bounce + i * PG, c_ptr(pin->cur[i]));

				C->failed_off = d;
				fail(i, "process %d: page %u of pin %u is not the process's page any more: byte %u is 0x%02x, must be 0x%02x",
				     slot, i, k, d, bounce[i * PG + d],
				     c_ptr(pin->cur[i])[d]);
			}
		return;
	}
	while (len < want) {
		ssize_t n = read(pipes[k][0] - 1, bounce + len, want - len);

		if (n <= 0)
			break;
		len += (size_t)n;
	}
	drop_pin(k);
	for (i = 0; i < pin->n && !pin->overflow; i++) {
		for (j = 0; j < pin->nver[i]; j++)
			if (same(bounce + i * PG, c_ptr(pin->ver[i][j])))
				break;
		if (j == pin->nver[i])
			fail(i, "process %d: page %u of splice %u holds what this process never wrote there",
			     slot, i, k);
	}
}

static void do_pin_write(unsigned int k)
{
	struct mpin *pin = &S->pin[k];
	unsigned int i;
	int r;

	for (i = 0; i < pin->n; i++)
		if (pwrite(scratch_fd, c_ptr(pin->cur[i]), PG, (off_t)(i * PG)) < 0)
			fail(i, "scratch: %m");
	r = ring_io((int)k, true, pin->n);
	if (r)
		fail(0, "pin %u: io_uring read: %d", k, r);
	for (i = 0; i < NPAGES; i++) {
		struct mpage *m = &S->pr[slot].pg[i];

		if (m->pin != k + 1)
			continue;
		/* a device dirties no PTE; the same byte again does */
		if (pwrite(my_mem(), c_ptr(m->c), 1, (off_t)ADDR(i)) != 1)
			fail(i, "process %d page %u: forced write: %m", slot, i);
		m->fl &= (uint16_t)~F_WPEXP;
		check_page(i, true);
	}
}

static void do_scan(const struct op *op)
{
	static struct page_region reg[NPAGES];
	static uint64_t pm[NPAGES];
	bool wp = C->arg;
	struct pm_scan_arg arg = {
		.size = sizeof(arg), .flags = wp ? PM_SCAN_WP_MATCHING : 0,
		.start = (unsigned long)ADDR(op->a),
		.end = (unsigned long)ADDR(op->a + op->n),
		.vec = (unsigned long)reg, .vec_len = NPAGES,
		.category_mask = wp ? PAGE_IS_WRITTEN : 0,
		.category_anyof_mask = wp ? 0 : PAGE_IS_PRESENT | PAGE_IS_SWAPPED,
		.return_mask = PAGE_IS_WRITTEN | PAGE_IS_PRESENT | PAGE_IS_SWAPPED,
	};
	static unsigned char hit[NPAGES];
	unsigned int i;
	int n, j;

	n = ioctl(my_pagemap(), PAGEMAP_SCAN, &arg);
	if (n < 0) {
		fail(op->a, "process %d: PAGEMAP_SCAN of %u pages: %m", slot, op->n);
		return;
	}
	memset(hit, 0, sizeof(hit));
	for (j = 0; j < n; j++)
		for (; reg[j].start < reg[j].end; reg[j].start += PG)
			hit[(reg[j].start - ARENA) / PG] = (unsigned char)reg[j].categories;
	if (pread(my_pagemap(), pm, op->n * 8UL,
		  (off_t)((unsigned long)ADDR(op->a) / PG * 8)) < 0)
		return;
	for (i = op->a; i < op->a + op->n; i++) {
		struct mpage *m = &S->pr[slot].pg[i];

		if (!(m->fl & F_MAPPED) || !wp)
			continue;
		if ((m->fl & F_UWRITTEN) && !hit[i])
			fail(i, "process %d page %u: PAGEMAP_SCAN missed a write", slot, i);
		m->fl &= (uint16_t)~(F_UWRITTEN | F_WPEXP);
		if ((pm[i - op->a] & PM_UFFD_WP) && !(m->fl & (F_LAZY | F_MERGE)))
			m->fl |= F_WPEXP;
	}
}

static void do_uffd_wp(const struct op *op)
{
	static uint64_t pm[NPAGES];
	unsigned int k;

	C->ret = uffd_wp(uffd_fd, op->a, op->n, C->arg);
	C->err = errno;
	if (C->ret || pread(my_pagemap(), pm, op->n * 8UL,
			    (off_t)((unsigned long)ADDR(op->a) / PG * 8)) < 0)
		return;
	for (k = 0; k < op->n; k++) {
		struct mpage *m = &S->pr[slot].pg[op->a + k];

		m->fl &= (uint16_t)~F_WPEXP;
		if (!C->arg)
			continue;
		m->fl &= (uint16_t)~F_UWRITTEN;
		if (m->fl & (F_LAZY | F_MERGE))
			continue;	/* a page that is dropped or merged takes the bit along */
		if (pm[k] & PM_UFFD_WP)
			m->fl |= F_WPEXP;
		else if (pm[k] & PM_PRESENT)
			fail(op->a + k, "process %d page %u: present and not write-protected",
			     slot, op->a + k);
	}
}

static void do_fork(const struct op *op)
{
	int child = op->q;	/* the command is gone as soon as the parent answers */
	pid_t pid = (pid_t)syscall(SYS_clone, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0);

	if (pid) {
		C->ret = pid;
		C->err = errno;
		return;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	slot = child;
	C = NULL;
	drop_all(false);
}

static void do_uffd_reg(const struct op *op)
{
	if (uffd_fd < 0)
		uffd_fd = uffd_open_fd(C->arg == 2);
	if (uffd_fd < 0) {
		C->ret = -1;
		C->err = errno;
		return;
	}
	C->ret = uffd_reg(uffd_fd, op->a, op->n, true) ? -1 : uffd_fd;
	C->err = errno;
}

static void do_cmd(void)
{
	const struct op *op = &C->op;
	unsigned char *addr = ADDR(op->a);
	size_t len = op->n * PG;
	int prot = (op->v & 1 ? PROT_READ : 0) | (op->v & 2 ? PROT_WRITE : 0);

	C->ret = 0;
	errno = 0;
	switch (op->t) {
	case OP_MAP:
	case OP_MAPSH:
		if (mmap(addr, len, prot, MAP_FIXED | MAP_ANONYMOUS | MAP_NORESERVE |
			 (op->t == OP_MAP ? MAP_PRIVATE : MAP_SHARED), -1, 0) != addr)
			fail(op->a, "mmap: %m");
		break;
	case OP_WRITE:
	case OP_KWRITE:
		do_write(op, op->t == OP_KWRITE);
		break;
	case OP_READ:
		do_read(op);
		break;
	case OP_FORK:
		do_fork(op);
		return;
	case OP_EXIT:
		_exit(0);
	case OP_RESET:
		drop_all(true);
		if (munmap(ADDR(0), NPAGES * PG))
			fail(0, "munmap: %m");
		break;
	case OP_MUNMAP:
		if (munmap(addr, len))
			fail(op->a, "munmap: %m");
		break;
	case OP_MREMAP:
		if (munmap(ADDR(op->b), len))
			fail(op->b, "munmap: %m");
		C->ret = mremap(addr, len, len, MREMAP_MAYMOVE | MREMAP_FIXED |
				(op->v ? MREMAP_DONTUNMAP : 0), ADDR(op->b)) == ADDR(op->b) ?
				0 : -1;
		break;
	case OP_MPROTECT:
		C->ret = mprotect(addr, len, prot);
		break;
	case OP_MADVISE:
		C->ret = madvise(addr, len, madv_list[op->v]);
		break;
	case OP_MLOCK:
		C->ret = mlock(addr, len);
		break;
	case OP_MUNLOCK:
		C->ret = munlock(addr, len);
		break;
	case OP_UFFD_REG:
		do_uffd_reg(op);
		return;
	case OP_UFFD_WP:
		do_uffd_wp(op);
		return;
	case OP_UFFD_UNREG:
		C->ret = uffd_reg(uffd_fd, op->a, op->n, false);
		break;
	case OP_SCAN:
		do_scan(op);
		break;
	case OP_PVREAD:
	case OP_PVWRITE:
		do_pv(op, op->t == OP_PVWRITE);
		break;
	case OP_MEMWRITE:
		do_mem_write(op);
		break;
	case OP_SPLICE:
		do_splice(op);
		return;
	case OP_RING:
		C->ret = ring_pin((int)C->arg, op->a, op->n);
		break;
	case OP_PINREAD:
		do_pin_read(op->a);
		break;
	case OP_PINWRITE:
		do_pin_write(op->a);
		break;
	case OP_UNPIN:
		drop_pin(op->a);
		break;
	case OP_CHECK:
		check_range(op->a, op->n, false);
		break;
	case OP_CHECKALL:
		if (C->arg == 2) {
			do_digest();
			break;
		}
		check_maps();
		check_range(0, NPAGES, C->arg);
		break;
	}
	C->err = errno;
}

void worker_main(int s)
{
	struct sigaction sa = { .sa_handler = on_fault, .sa_flags = SA_NODEFER };
	uint64_t x;

	sigaction(SIGSEGV, &sa, NULL);
	sigaction(SIGBUS, &sa, NULL);
	signal(SIGCHLD, SIG_DFL);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	slot = s;
	for (;;) {
		if (read(cmd_fd[slot], &x, 8) != 8) {
			if (errno == EINTR)
				continue;
			_exit(3);
		}
		C = &S->pr[slot].cmd;
		do_cmd();
		if (!C)		/* the child of a fork: nothing to say yet */
			continue;
		C->done = true;
		x = 1;
		if (write(done_fd, &x, 8) != 8)
			_exit(3);
	}
}

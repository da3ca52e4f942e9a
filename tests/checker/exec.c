// SPDX-License-Identifier: GPL-2.0
/*
 * The orchestrator: takes one operation, cuts it to what is defined for the
 * present state, brings the model up to date, has the process do it, and
 * compares.  It never touches the memory under test itself.
 */
#include "chk.h"

#include <poll.h>
#include <stdarg.h>
#include <sys/eventfd.h>
#include <sys/time.h>
#include <sys/syscall.h>
#include <time.h>

unsigned long stat_ops[OP_NR], stat_skip[OP_NR], stat_ns[OP_NR], stat_oom;
unsigned int opt_procs = NPROC, opt_check = 200;
int opt_digest_fd = -1;
bool opt_verbose, opt_swapoff;
int cmd_fd[NPROC], done_fd;
struct op *eff;

static struct failure *F;
static uint64_t seed_now;
static int uffds[NPROC];	/* our own copies, + 1 */
static volatile sig_atomic_t child_died, ticks;

/* A process that does not answer for so long hangs. */
#define TICK_SECONDS	30
#define HANG_TICKS	10

/* Whatever comes wakes the orchestrator by the same door. */
static void wake(void)
{
	uint64_t x = 1;
	int e = errno;

	if (write(done_fd, &x, 8) != 8)
		_exit(3);
	errno = e;
}

static void on_child(int sig)
{
	child_died = 1;
	wake();
}

static void on_tick(int sig)
{
	ticks++;
	wake();
}

static int __attribute__((format(printf, 2, 3))) failed(int p, const char *fmt, ...)
{
	va_list ap;

	if (F->failed)
		return -1;
	F->failed = true;
	F->proc = p;
	F->want = -1;
	va_start(ap, fmt);
	vsnprintf(F->msg, sizeof(F->msg), fmt, ap);
	va_end(ap);
	return -1;
}

/* What a process that is gone has not read any more is not for the next in its slot. */
static void drop_orders(unsigned int p)
{
	struct pollfd pf = { cmd_fd[p], POLLIN, 0 };
	uint64_t x;

	while (poll(&pf, 1, 0) == 1 && read(cmd_fd[p], &x, 8) == 8)
		;
}

static void forget(int p)
{
	drop_orders((unsigned int)p);
	if (uffds[p])
		close(uffds[p] - 1);
	uffds[p] = 0;
	m_exit(p);
}

/* A process is gone that should not be: the OOM killer may, under our own limit. */
static int died(int p, int status)
{
	static long seen;
	long kills = env_oom_kills();

	forget(p);
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && kills > seen) {
		seen++;		/* it may take several before the first is noticed */
		stat_oom++;
		return 0;
	}
	return failed(p, "process %d died: %s %d", p,
		      WIFSIGNALED(status) ? "signal" : "exit",
		      WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

static int reap(void)
{
	int status, p, r = 0;
	pid_t pid;

	child_died = 0;
	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		for (p = 0; p < NPROC; p++)
			if (S->pr[p].alive && S->pr[p].pid == pid)
				r |= died(p, status);
	return r;
}

static void uffd_event(int p)
{
	unsigned int page;

	while (uffd_next(uffds[p] - 1, &page)) {
		if (page < NPAGES)
			S->pr[p].pg[page].fl &= (uint16_t)~F_WPEXP;
		uffd_wp(uffds[p] - 1, page, 1, false);
	}
}

/* Sleep until there is an answer, a signal or an event of userfaultfd. */
static void wait_event(void)
{
	struct pollfd pf[NPROC + 1] = { { done_fd, POLLIN, 0 } };
	int who[NPROC + 1], n = 1, i;
	uint64_t x;

	for (i = 0; i < NPROC; i++)
		if (uffds[i] && S->pr[i].uffd_mode == 1) {
			pf[n] = (struct pollfd){ uffds[i] - 1, POLLIN, 0 };
			who[n++] = i;
		}
	if (n > 1 && poll(pf, (nfds_t)n, -1) < 0)
		return;
	if ((n == 1 || (pf[0].revents & POLLIN)) && read(done_fd, &x, 8) != 8)
		return;
	for (i = 1; i < n; i++)
		if (pf[i].revents & POLLIN)
			uffd_event(who[i]);
}

static int wait_done(int p)
{
	const sig_atomic_t started = ticks;

	for (;;) {
		wait_event();
		if (S->pr[p].cmd.done)
			return 0;
		if (child_died) {
			if (reap())
				return -1;
			if (!S->pr[p].alive)
				return 1;
		}
		if (ticks - started > HANG_TICKS)
			return failed(p, "process %d does not come back", p);
	}
}

/* 0: done and right; 1: the process is gone, with reason; -1: failed. */
static int command(int p, const struct op *op, uint32_t arg)
{
	struct cmd *c = &S->pr[p].cmd;
	uint64_t x = 1;
	int r;

	c->op = *op;
	c->arg = arg;
	c->fail = c->done = false;
	c->want = -1;
	c->failed_off = 0;
	if (write(cmd_fd[p], &x, 8) != 8)
		return failed(p, "eventfd: %m");
	r = wait_done(p);
	if (r)
		return r;
	if (c->fail) {
		failed(p, "%s", c->msg);
		F->page = c->failed_page;
		F->off = c->failed_off;
		F->want = c->want;
		return -1;
	}
	return 0;
}

static int check(int p, unsigned int a, unsigned int n)
{
	struct op op = { .t = OP_CHECK, .p = (uint8_t)p, .a = (uint16_t)a,
			 .n = (uint16_t)n };

	return n ? command(p, &op, 0) : 0;
}

static int check_all(bool touch)
{
	struct op op = { .t = OP_CHECKALL };
	int p, r = 0;

	for (p = 0; p < NPROC && r >= 0; p++)
		if (S->pr[p].alive)
			r = command(p, &op, touch);
	return r < 0 ? -1 : 0;
}

/* Some ops write-fault without a store that the model knows of. */
static void drop_wpexp(int p, const struct op *op)
{
	unsigned int i;

	for (i = op->a; i < op->a + op->n; i++)
		S->pr[p].pg[i].fl &= (uint16_t)~F_WPEXP;
}

static void set_flags(int p, const struct op *op, unsigned int set, unsigned int clear)
{
	unsigned int i;

	for (i = op->a; i < op->a + op->n; i++) {
		uint16_t *fl = &S->pr[p].pg[i].fl;

		*fl = (uint16_t)((*fl & ~clear) | set);
	}
}

static bool any_pin(int p, const struct op *op, bool ring_only)
{
	unsigned int i;

	for (i = op->a; i < op->a + op->n; i++) {
		uint8_t pin = S->pr[p].pg[i].pin;

		if (pin && (!ring_only || S->pin[pin - 1].ring))
			return true;
	}
	return false;
}

static bool any_lazy(int p, const struct op *op)
{
	unsigned int i;

	for (i = op->a; i < op->a + op->n; i++)
		if (S->pr[p].pg[i].alt != NOALT)
			return true;
	return false;
}

/*
 * Stock's MADV_FREE drops what others still need (7.3.4): a pin for reading copies a
 * shared page and leaves PTE and folio clean; after the next fork MADV_FREE in one
 * process takes the folio for clean, and reclaim drops it in both.
 */
static bool free_loses(int p, const struct op *op)
{
	unsigned int i;

	for (i = op->a; i < op->a + op->n; i++)
		if ((S->pr[p].pg[i].fl & F_UNSHARED) && m_shared(&S->pr[p].pg[i]))
			return true;
	return false;
}

/*
 * /proc/<pid>/mem cannot wait for a userfaultfd handler: a forced write to a page
 * that is write-protected for one fails, on every kernel.
 */
static bool handler_in_the_way(int p, unsigned int a, unsigned int n)
{
	unsigned int i;

	for (i = a; i < a + n && S->pr[p].uffd_mode == 1; i++)
		if (S->pr[p].pg[i].fl & F_UFFD)
			return true;
	return false;
}

static void model_write(int p, const struct op *op, bool forced)
{
	unsigned int k;

	for (k = 0; k < op->n; k++) {
		unsigned int i = op->a + k;
		struct mpage *m = &S->pr[p].pg[i];
		struct geom g = write_geom(op, i);
		bool may = forced ? can_force(m) : m->fl & F_W;

		if (!g.skip && may)
			m_write(p, i, g.off, g.len, page_seed(op->v, i), op->v % 8);
	}
}

#define SKIP 2

static int do_madvise(struct op *o)
{
	const struct mpage *m = &S->pr[o->p].pg[o->a];
	int adv = madv_list[o->v % MADV_NR], r, p = o->p;
	struct cmd *c = &S->pr[p].cmd;
	bool may_fail = false;

	o->v %= MADV_NR;
	o->n = (uint16_t)m_clip(p, o->a, o->n, F_SHARED | F_LOCKED | F_UFFD | F_R | F_W);
	if (!o->n)
		return SKIP;
	switch (adv) {
	case MADV_FREE:
		if ((m->fl & (F_SHARED | F_LOCKED)) || any_pin(p, o, true) || free_loses(p, o))
			return SKIP;
		break;
	case MADV_DONTNEED:
	case MADV_PAGEOUT:
	case MADV_COLD:
		if (m->fl & F_LOCKED)
			return SKIP;
		break;
	case MADV_WIPEONFORK:
		if (m->fl & F_SHARED)
			return SKIP;
		break;
	case MADV_POPULATE_WRITE:
		drop_wpexp(p, o);
		may_fail = !(m->fl & F_W);
		break;
	case MADV_POPULATE_READ:
		may_fail = !(m->fl & F_R);
		break;
	case MADV_COLLAPSE:
	case MADV_MERGEABLE:
	case MADV_UNMERGEABLE:
		may_fail = true;
		break;
	}
	if (adv == MADV_MERGEABLE)
		set_flags(p, o, F_MERGE, F_WPEXP);
	r = command(p, o, 0);
	if (r)
		return r;
	if (c->ret) {
		if (may_fail || c->err == ENOMEM || c->err == EAGAIN || c->err == EFAULT)
			return 0;
		return failed(p, "madvise(%s): %s", madv_name[o->v], strerror(c->err));
	}
	switch (adv) {
	case MADV_FREE:
		m_lazy(p, o->a, o->n);
		break;
	case MADV_DONTNEED:
		m_zap(p, o->a, o->n);
		break;
	case MADV_WIPEONFORK:
		set_flags(p, o, F_WIPE, 0);
		break;
	case MADV_KEEPONFORK:
		set_flags(p, o, 0, F_WIPE);
		break;
	case MADV_DONTFORK:
		set_flags(p, o, F_DONTFORK, 0);
		break;
	case MADV_DOFORK:
		set_flags(p, o, 0, F_DONTFORK);
		break;
	}
	return (o->v + o->a) & 1 ? 0 : check(p, o->a, o->n);
}

/* No process is left, and the next step begins with a new one. */
static void start_over(void)
{
	int p, st;

	env_kill();
	while (waitpid(-1, &st, 0) > 0 || errno == EINTR)
		;
	for (p = 0; p < NPROC; p++)
		if (S->pr[p].alive)
			forget(p);
	child_died = 0;
}

static int do_fork(struct op *o)
{
	struct mproc *pr = &S->pr[o->p], *ch = &S->pr[o->q];
	int r;

	if (ch->alive || o->q >= opt_procs || o->p == o->q)
		return SKIP;
	m_fork(o->p, o->q);
	r = command(o->p, o, 0);
	if (r == 1) {		/* the parent was killed: is there a child? */
		m_exit(o->q);
		start_over();
		return 0;
	}
	if (r || pr->cmd.ret < 0) {
		m_exit(o->q);
		if (!r && pr->cmd.err != ENOMEM && pr->cmd.err != EAGAIN)
			return failed(o->p, "fork: %s", strerror(pr->cmd.err));
		return r;
	}
	ch->alive = true;
	ch->pid = (pid_t)pr->cmd.ret;
	ch->uffd_mode = 0;
	return 0;
}

static int do_exit(int p)
{
	uint64_t x = 1;
	int status;

	S->pr[p].cmd.op = (struct op){ .t = OP_EXIT };
	if (write(cmd_fd[p], &x, 8) != 8)
		return failed(p, "eventfd: %m");
	while (waitpid(S->pr[p].pid, &status, 0) < 0 && errno == EINTR)
		;
	if (status)
		return died(p, status);
	forget(p);
	return 0;
}

static int do_mremap(struct op *o)
{
	const struct mpage *m = &S->pr[o->p].pg[o->a];
	unsigned int i;
	int r, p = o->p;

	o->n = (uint16_t)m_clip(p, o->a, o->n, F_VMA);
	if (o->n && (m->fl & F_UFFD))
		o->n = 1;	/* one VMA for certain: several are moved one by one */
	if (!o->n || o->b + o->n > (int)NPAGES ||
	    (o->b < o->a + o->n && o->a < o->b + o->n))
		return SKIP;
	if (m->fl & (F_SHARED | F_LOCKED | F_UFFD))
		o->v = 0;
	for (i = 0; i < o->n; i++)
		m_clear(&S->pr[p].pg[o->b + i]);
	r = command(p, o, 0);
	if (r)
		return r;
	if (S->pr[p].cmd.ret)
		return check(p, o->a, o->n);
	m_move(p, o->a, o->n, o->b, o->v);
	r = check(p, o->b, o->n);
	return r ? r : check(p, o->a, o->n);
}

static int do_uffd_reg(struct op *o)
{
	struct mproc *pr = &S->pr[o->p];
	int mode = pr->uffd_mode, r, pidfd;

	if (!S->has_uffd)
		return SKIP;
	o->n = (uint16_t)m_clip(o->p, o->a, o->n, F_SHARED);
	if (!o->n || (pr->pg[o->a].fl & F_SHARED))
		return SKIP;
	if (!mode)
		mode = o->v && S->has_uffd_async ? 2 : 1;
	o->v = (uint32_t)mode;
	r = command(o->p, o, (uint32_t)mode);
	if (r)
		return r;
	if (pr->cmd.ret < 0)
		return pr->cmd.err == ENOMEM ? 0 :
		       failed(o->p, "UFFDIO_REGISTER: %s", strerror(pr->cmd.err));
	set_flags(o->p, o, F_UFFD, 0);
	if (pr->uffd_mode)
		return 0;
	pr->uffd_mode = mode;
	pidfd = (int)syscall(SYS_pidfd_open, pr->pid, 0);
	uffds[o->p] = (int)syscall(SYS_pidfd_getfd, pidfd, (int)pr->cmd.ret, 0) + 1;
	close(pidfd);
	if (!uffds[o->p])
		return failed(o->p, "pidfd_getfd: %m");
	return 0;
}

static int do_uffd(struct op *o)
{
	int r;

	o->n = (uint16_t)m_clip(o->p, o->a, o->n, F_UFFD);
	if (!o->n || !(S->pr[o->p].pg[o->a].fl & F_UFFD))
		return SKIP;
	r = command(o->p, o, o->v);
	if (r)
		return r;
	if (S->pr[o->p].cmd.ret)
		return S->pr[o->p].cmd.err == ENOMEM ? 0 :
		       failed(o->p, "%s: %s", op_info[o->t].name,
			      strerror(S->pr[o->p].cmd.err));
	if (o->t == OP_UFFD_UNREG)
		set_flags(o->p, o, 0, F_UFFD | F_WPEXP | F_UWRITTEN);
	return 0;
}

static int do_pin(struct op *o)
{
	struct mproc *pr = &S->pr[o->p];
	bool ring = o->t == OP_RING;
	unsigned int k;
	int r;

	for (k = 0; k < NPIN && S->pin[k].used; k++)
		;
	if (k == NPIN || (ring && !S->has_uring))
		return SKIP;
	o->n = (uint16_t)m_clip(o->p, o->a, o->n, F_SHARED | F_R | F_W);
	if (o->n > (ring ? PINPAGES : 8))
		o->n = ring ? PINPAGES : 8;
	if (!o->n || (pr->pg[o->a].fl & F_SHARED) || any_pin(o->p, o, false) ||
	    !(pr->pg[o->a].fl & (ring ? F_W : F_R)) || (ring && any_lazy(o->p, o)))
		return SKIP;
	if (ring && pr->uffd_mode == 2)
		drop_wpexp(o->p, o);
	o->b = (uint16_t)k;
	if (ring) {
		r = command(o->p, o, k);
		if (!r && pr->cmd.ret)
			return pr->cmd.err == ENOMEM ? 0 :
			       failed(o->p, "io_uring buffer: %s", strerror(pr->cmd.err));
	} else {
		r = command(o->p, o, k);
		if (!r && pr->cmd.ret != (int64_t)(o->n * PG))
			return failed(o->p, "vmsplice of %u pages: %ld", o->n, (long)pr->cmd.ret);
	}
	if (!r)
		m_pin_set((int)k, o->p, o->a, o->n, ring);
	return r;
}

static int do_pin_use(struct op *o)
{
	struct mpin *pin = &S->pin[o->a % NPIN];
	struct mpage *pg;
	unsigned int i;
	int r;

	o->a %= NPIN;
	if (!pin->used)
		return SKIP;
	o->p = pin->proc;
	pg = S->pr[o->p].pg;
	if (o->t == OP_PINWRITE) {
		if (!pin->ring)
			return SKIP;
		for (i = 0; i < NPAGES; i++)
			if (pg[i].pin == o->a + 1 && 
			    (pg[i].alt != NOALT || !can_force(&pg[i]) ||
			     handler_in_the_way(o->p, i, 1)))
				return SKIP;
		for (i = 0; i < NPAGES; i++) {
			uint16_t fl = pg[i].fl;

			if (pg[i].pin != o->a + 1)
				continue;
			m_write(o->p, i, 0, PG, page_seed(o->v, i), 0);
			pg[i].fl = fl;
		}
	}
	r = command(o->p, o, 0);
	if (!r && (o->t == OP_UNPIN || (o->t == OP_PINREAD && !pin->ring)))
		m_pin_drop(o->a);
	return r;
}

static int do_sdclear(const struct op *o)
{
	char name[40];
	unsigned int i;
	int fd;

	S->pr[o->p].sd_moves = env_moves();
	snprintf(name, sizeof(name), "/proc/%d/clear_refs", S->pr[o->p].pid);
	fd = open(name, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, "4", 1) != 1) {
		if (fd >= 0)
			close(fd);
		return SKIP;
	}
	close(fd);
	for (i = 0; i < NPAGES; i++)
		S->pr[o->p].pg[i].fl &= (uint16_t)~F_SDW;
	return 0;
}

/*
 * Not for a digest: what comes of it depends on the kernel's own threads, on
 * what is on which list when, or is ours alone. Nor, in every second episode,
 * what reads memory that nobody wrote: a write to the zero page may bring in a
 * large folio on one kernel and a small one on the other, and the rest of the
 * episode differs in mincore and memory.
 */
static bool not_for_digest(const struct op *o)
{
	const int advice = o->t == OP_MADVISE ? madv_list[o->v % MADV_NR] : -1;

	switch (o->t) {
	case OP_RECLAIM:
	case OP_MEMLIMIT:
	case OP_SWAPCYCLE:
	case OP_KSM:
	case OP_KNOB:
		return true;
	case OP_READ:
	case OP_PVREAD:
	case OP_SPLICE:
	case OP_MLOCK:
		return S->frugal;
	}
	return advice == MADV_PAGEOUT || (advice == MADV_POPULATE_READ && S->frugal);
}

/* o: in: as drawn; out: as done. */
static int do_op(struct op *o)
{
	struct mproc *pr = &S->pr[o->p];
	int r, p = o->p;

	if (opt_digest_fd >= 0 && not_for_digest(o))
		return SKIP;
	if (o->t == OP_SWAPCYCLE && !opt_swapoff)
		return SKIP;
	if (o->t >= OP_PINREAD && o->t <= OP_UNPIN)
		return do_pin_use(o);
	if (o->t >= OP_SWAPCYCLE && o->t <= OP_PAUSE)
		return env_do(o, pr->alive ? pr->pid : 0) ? SKIP : 0;
	if (!pr->alive)
		return SKIP;
	switch (o->t) {
	case OP_MAP:
	case OP_MAPSH:
		m_map(p, o->a, o->n, (int)o->v, o->t == OP_MAPSH);
		return command(p, o, 0);
	case OP_WRITE:
	case OP_KWRITE:
		model_write(p, o, false);
		return command(p, o, 0);
	case OP_MEMWRITE:
		if (o->n > 64)
			o->n = 64;
		if (handler_in_the_way(p, o->a, o->n))
			return SKIP;
		model_write(p, o, true);
		return command(p, o, 0);
	case OP_PVREAD:
	case OP_PVWRITE:
		if (!S->pr[o->q].alive)
			return SKIP;
		if (o->n > 64)
			o->n = 64;
		if (o->t == OP_PVWRITE)
			model_write(o->q, o, false);
		set_flags(o->q, o, F_UNSHARED, 0);
		return command(p, o, 0);
	case OP_FORK:
		return do_fork(o);
	case OP_EXIT: {
		int i, n = 0;

		for (i = 0; i < NPROC; i++)
			n += S->pr[i].alive;
		return n < 2 ? SKIP : do_exit(p);
	}
	case OP_RESET:
		r = command(p, o, 0);
		if (uffds[p])
			close(uffds[p] - 1);
		uffds[p] = 0;
		m_exit(p);
		pr->alive = true;
		return r;
	case OP_MUNMAP: {
		unsigned int i;

		for (i = o->a; i < o->a + o->n; i++)
			m_clear(&pr->pg[i]);
		return command(p, o, 0);
	}
	case OP_MREMAP:
		return do_mremap(o);
	case OP_MADVISE:
		return do_madvise(o);
	case OP_MPROTECT:
	case OP_MLOCK:
	case OP_MUNLOCK:
		if (o->t == OP_MLOCK && o->n > 64)
			o->n = 64;
		o->n = (uint16_t)m_clip(p, o->a, o->n, F_MAPPED);
		if (!o->n)
			return SKIP;
		if (o->t == OP_MLOCK && pr->uffd_mode == 2)
			drop_wpexp(p, o);
		r = command(p, o, 0);
		if (r)
			return r;
		if (pr->cmd.ret && !(o->t == OP_MLOCK && (pr->cmd.err == ENOMEM ||
							  pr->cmd.err == EAGAIN)))
			return pr->cmd.err == ENOMEM ? 0 :
			       failed(p, "%s: %s", op_info[o->t].name, strerror(pr->cmd.err));
		if (o->t == OP_MPROTECT)
			set_flags(p, o, (o->v & 1 ? F_R : 0) | (o->v & 2 ? F_W : 0), F_R | F_W);
		else
			set_flags(p, o, o->t == OP_MLOCK ? F_LOCKED : 0, F_LOCKED);
		return 0;
	case OP_UFFD_REG:
		return do_uffd_reg(o);
	case OP_UFFD_WP:
	case OP_UFFD_UNREG:
		return do_uffd(o);
	case OP_SDCLEAR:
		return do_sdclear(o);
	case OP_SCAN:
		if (!S->has_scan)
			return SKIP;
		o->n = (uint16_t)m_clip(p, o->a, o->n, F_UFFD);
		if (!o->n)
			return SKIP;
		return command(p, o, o->v && pr->uffd_mode == 2 && (pr->pg[o->a].fl & F_UFFD));
	case OP_SPLICE:
	case OP_RING:
		return do_pin(o);
	case OP_READ:
	case OP_CHECK:
		return command(p, o, 0);
	case OP_CHECKALL:
		return check_all(o->v & 1);
	}
	return SKIP;
}

static int start_first(void)
{
	pid_t pid = fork();

	if (!pid) {
		env_join();
		worker_main(0);
	}
	S->pr[0].pid = pid;
	S->pr[0].alive = true;
	return 0;
}

static void kill_all(void)
{
	int p, st;

	for (p = 0; p < NPROC; p++) {
		if (!S->pr[p].alive)
			continue;
		kill(S->pr[p].pid, SIGKILL);
		waitpid(S->pr[p].pid, &st, 0);
		forget(p);
	}
}

/* What two kernels have to agree on, and the memory that it takes them. */
static void digest_line(unsigned int step, const struct op *o)
{
	struct op all = { .t = OP_CHECKALL };
	char line[256];
	int n, p = o->p;

	if (!S->pr[p].alive || command(p, &all, 2))
		return;
	n = snprintf(line, sizeof(line),
		     "digest %lu %u %s p=%d bytes=%016lx perm=%016lx mincore=%016lx resident=%lu written=%u memory=%ld\n",
		     (unsigned long)seed_now, step, op_info[o->t].name, p, (unsigned long)m_hash(p),
		     (unsigned long)S->pr[p].cmd.h_perm, (unsigned long)S->pr[p].cmd.h_mincore,
		     (unsigned long)S->pr[p].cmd.resident, m_written() * 4, env_memory() >> 10);
	if (write(opt_digest_fd, line, (size_t)n) != n)
		opt_digest_fd = -1;
}

static unsigned long since(const struct timespec *t0)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (unsigned long)((t.tv_sec - t0->tv_sec) * 1000000000L + t.tv_nsec - t0->tv_nsec);
}

/* Does the operation write what others than its process have as well? */
static bool writes_of_others(const struct op *o)
{
	unsigned int i;

	if (o->t == OP_PVWRITE || o->t == OP_PINWRITE)
		return true;
	if (o->t != OP_WRITE && o->t != OP_KWRITE && o->t != OP_MEMWRITE)
		return false;
	for (i = o->a; i < o->a + o->n; i++)
		if (S->pr[o->p].pg[i].sh)
			return true;
	return false;
}

int episode(struct op *ops, unsigned int n, uint64_t seed, bool generate,
	    struct failure *f)
{
	const struct itimerval tick = { { TICK_SECONDS, 0 }, { TICK_SECONDS, 0 } };
	struct rng r = { seed };
	struct timespec t0;
	unsigned int step, p;
	bool others;
	int res = 0;

	memset(f, 0, sizeof(*f));
	F = f;
	seed_now = seed;
	if (!done_fd) {
		done_fd = eventfd(0, EFD_CLOEXEC);
		for (p = 0; p < NPROC; p++)
			cmd_fd[p] = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
	}
	for (p = 0; p < NPROC; p++)
		drop_orders(p);
	sigaction(SIGCHLD, &(struct sigaction){ .sa_handler = on_child, .sa_flags = SA_RESTART }, NULL);
	sigaction(SIGALRM, &(struct sigaction){ .sa_handler = on_tick, .sa_flags = SA_RESTART }, NULL);
	setitimer(ITIMER_REAL, &tick, NULL);
	model_init();
	S->frugal = opt_digest_fd >= 0 && seed & 1;
	S->lru_gen = seed & 2;
	op_gen_start(seed);
	env_episode();
	start_first();
	for (step = 0; step < n && res >= 0; step++) {
		struct op o;

		if (generate) {
			op_gen(&r, &ops[step]);
			op_begin(&ops[step], step);
		}
		o = ops[step];
		f->step = step;
		f->op = o;
		if (opt_verbose) {
			char line[128];

			op_print(line, sizeof(line), &o);
			printf("# %u: %s\n", step, line);
			fflush(stdout);
		}
		clock_gettime(CLOCK_MONOTONIC, &t0);
		others = writes_of_others(&o);
		res = do_op(&o);
		/* Killed on the way: how far it came, the model cannot know. */
		if (res == 1 && others)
			break;
		stat_ns[o.t] += since(&t0);
		eff[step] = o;
		if (res == SKIP) {
			eff[step].n = EFF_SKIP;
			stat_skip[o.t]++;
		} else {
			stat_ops[o.t]++;
		}
		if (res >= 0 && child_died)
			res = reap();
		if (res >= 0 && opt_digest_fd >= 0)
			digest_line(step, &o);
		if (res >= 0 && opt_check && step % opt_check == opt_check - 1) {
			clock_gettime(CLOCK_MONOTONIC, &t0);
			res = check_all(step / opt_check % 8 == 7 && opt_digest_fd < 0);
			stat_ns[OP_CHECKALL] += since(&t0);
			stat_ops[OP_CHECKALL]++;
		}
		for (p = 0; p < NPROC && !S->pr[p].alive; p++)
			;
		if (p == NPROC && res >= 0) {	/* the OOM killer took the last one */
			start_first();
		}
	}
	if (res >= 0 && step == n) {
		f->step = n ? n - 1 : 0;
		for (p = 0; p < NPIN && res >= 0; p++)
			if (S->pin[p].used) {
				struct op o = { .t = OP_PINREAD, .a = (uint16_t)p };

				res = do_pin_use(&o);
			}
		if (res >= 0)
			res = check_all(true);
	}
	kill_all();
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
	if (res >= 0 && !env_memory_back(f->msg, sizeof(f->msg))) {
		f->failed = true;
		f->want = -1;
		res = -1;
	}
	return f->failed ? -1 : 0;
}

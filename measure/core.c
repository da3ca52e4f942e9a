// SPDX-License-Identifier: GPL-2.0
/*
 * Settings that are changed and put back, the clock, and children.
 *
 * Every change to the machine is first written down in a table shared with a
 * guardian process, which sleeps on a pipe. When the measuring process ends,
 * however it ends (exit, signal, SIGKILL), the pipe closes and the guardian
 * undoes the table from its end. So there is one way back, and it is always
 * the one that was tested.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/statfs.h>
#include <sys/swap.h>
#include <sys/wait.h>
#include <unistd.h>

#include "measure.h"

enum undo_kind { UNDO_WRITE, UNDO_SWAPOFF };

struct undo {
	enum undo_kind kind;
	char path[160];
	char val[64];
};

#define MAX_UNDO	128
#define RAMFS_MAGIC	0x858458f6
#define TMPFS_MAGIC	0x01021994

struct undo_table {
	volatile unsigned int n;
	struct undo u[MAX_UNDO];
};

static struct undo_table *undo;
static pid_t guardian;
static int guardian_fd = -1;
static volatile sig_atomic_t the_child;

uint64_t clock_cost;
uint64_t clock_step;
uint64_t copy_cost;
size_t pgsize;
size_t pmdsize;

/**
 * is_root - may we change settings and read /proc/kpageflags?
 */
bool is_root(void)
{
	return geteuid() == 0;
}

/**
 * setting_write - write a file as it is, nothing noted down
 */
bool setting_write(const char *path, const char *val)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	size_t len = strlen(val);
	bool ok;

	if (fd < 0)
		return false;
	ok = write(fd, val, len) == (ssize_t)len;
	close(fd);
	return ok;
}

/*
 * The guardian: waits until the measuring process is gone, then undoes what
 * it wrote down, the last change first.
 */
static void guardian_main(int fd, int lock)
{
	unsigned int i;
	char c;
	int null, other;

	setsid();
	prctl(PR_SET_NAME, "folio-guardian");
	signal(SIGINT, SIG_IGN);
	signal(SIGTERM, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	signal(SIGQUIT, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	null = open("/dev/null", O_RDWR);
	if (null >= 0) {
		dup2(null, 0);
		dup2(null, 1);
		dup2(null, 2);
	}
	/* nobody is to wait for a pipe to close because we inherited its end */
	for (other = 3; other < 1024; other++)
		if (other != fd && other != lock)
			close(other);
	while (read(fd, &c, 1) != 0 && errno == EINTR)
		;
	for (i = undo->n; i-- > 0;) {
		struct undo *u = &undo->u[i];

		if (u->kind == UNDO_WRITE)
			setting_write(u->path, u->val);
		else
			swapoff(u->path);
	}
	_exit(0);
}

/* Signal-safe: end the child, let the guardian undo everything, wait for it. */
static void put_back(void)
{
	if (the_child > 0)
		kill(the_child, SIGKILL);
	if (guardian_fd >= 0) {
		close(guardian_fd);
		guardian_fd = -1;
		while (waitpid(guardian, NULL, 0) < 0 && errno == EINTR)
			;
	}
}

static void on_signal(int sig)
{
	put_back();
	signal(sig, SIG_DFL);
	raise(sig);
}

static const int caught[] = {
	SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGALRM,
	SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT,
};

static void start_guardian(int lock)
{
	int p[2];

	undo = mmap(NULL, sizeof(*undo), PROT_READ | PROT_WRITE,
		    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (undo == MAP_FAILED || pipe2(p, O_CLOEXEC)) {
		perror("folio-measure: guardian");
		exit(1);
	}
	fflush(NULL);
	guardian = fork();
	if (guardian < 0) {
		perror("folio-measure: fork");
		exit(1);
	}
	if (!guardian) {
		close(p[1]);
		guardian_main(p[0], lock);
	}
	close(p[0]);
	guardian_fd = p[1];
}

/*
 * Clock: the cost of a pair of readings is subtracted from every interval.
 * Least of many, since a timer tick can only make one longer.
 */
static void calibrate_clock(void)
{
	uint64_t best = UINT64_MAX, step = UINT64_MAX, a, b, end;
	int i;

	for (i = 0; i < 2000; i++) {
		a = now();
		b = now();
		if (b - a < best)
			best = b - a;
	}
	clock_cost = best;
	/* a clock that stands still between two readings advances by steps */
	if (!best) {
		a = now();
		for (end = a + 50000000; a < end; a = b) {
			b = now();
			if (b > a && b - a < step)
				step = b - a;
		}
		clock_step = step;
	} else {
		clock_step = best;
	}
}

/* elapsed - interval between two readings, less what reading costs */
uint64_t elapsed(uint64_t from, uint64_t to)
{
	uint64_t d = to - from;

	return d > clock_cost ? d - clock_cost : 0;
}

#ifdef __x86_64__
static bool cpu_flag(const char *flag)
{
	char line[4096], want[32];
	bool found = false;
	FILE *f = fopen("/proc/cpuinfo", "r");

	if (!f)
		return false;
	snprintf(want, sizeof(want), " %s ", flag);
	while (fgets(line, sizeof(line), f)) {
		if (strncmp(line, "flags", 5))
			continue;
		line[strcspn(line, "\n")] = ' ';
		found = strstr(line, want) != NULL;
		break;
	}
	fclose(f);
	return found;
}

/*
 * The instructions by which the kernel copies a page in a write fault
 * (copy_mc_to_kernel(): "rep movsb" where the CPU says ERMS, otherwise
 * memcpy(), which without FSRM is a loop of 32 bytes a turn).
 */
static void copy_page_like_kernel(void *dst, const void *src, bool rep)
{
	size_t n = pgsize;

	if (rep) {
		asm volatile("rep movsb" : "+D"(dst), "+S"(src), "+c"(n) :: "memory");
		return;
	}
	n -= 32;
	asm volatile("1: sub $32, %2\n\t"
		     "mov (%1), %%r8\n\tmov 8(%1), %%r9\n\t"
		     "mov 16(%1), %%r10\n\tmov 24(%1), %%r11\n\t"
		     "lea 32(%1), %1\n\t"
		     "mov %%r8, (%0)\n\tmov %%r9, 8(%0)\n\t"
		     "mov %%r10, 16(%0)\n\tmov %%r11, 24(%0)\n\t"
		     "lea 32(%0), %0\n\tjae 1b"
		     : "+r"(dst), "+r"(src), "+r"(n)
		     :: "r8", "r9", "r10", "r11", "memory", "cc");
}
#else
static bool cpu_flag(const char *flag)
{
	(void)flag;
	return false;
}

static void copy_page_like_kernel(void *dst, const void *src, bool rep)
{
	(void)rep;
	memcpy(dst, src, pgsize);
}
#endif

static void calibrate_copy(void)
{
	bool rep = cpu_flag("erms");
	char *buf = scratch(2 * pgsize);
	uint64_t best = UINT64_MAX, a, b;
	int i;

	for (i = 0; i < 200; i++) {
		a = now();
		copy_page_like_kernel(buf, buf + pgsize, rep);
		b = now();
		if (elapsed(a, b) < best)
			best = elapsed(a, b);
	}
	munmap(buf, 2 * pgsize);
	copy_cost = best;
}

/**
 * in_lab - is this a machine that lives in its initramfs?
 *
 * The lab's does; nobody's desktop does. What would touch others' work on a
 * machine (swap, the page allocator's lists) is done in the lab only.
 */
bool in_lab(void)
{
	struct statfs s;

	return is_root() && !statfs("/", &s) &&
	       (s.f_type == RAMFS_MAGIC || s.f_type == TMPFS_MAGIC);
}

/**
 * khugepaged_pause - make khugepaged sleep, for longer than we shall run
 *
 * It looks at one page more and then sleeps for 23 days.
 */
void khugepaged_pause(void)
{
	setting_set(THP_DIR "/khugepaged/pages_to_scan", "1");
	setting_set(THP_DIR "/khugepaged/scan_sleep_millisecs", "2000000000");
}

/**
 * fixed_addresses - start this program anew without address space randomisation
 * @argv: its arguments, as main() got them
 *
 * The same addresses in every run, here and in what it starts: page tables and
 * trees look alike. Returns when that is so, or cannot be had.
 */
void fixed_addresses(char **argv)
{
	int p = personality(0xffffffff);

	if (p != -1 && !(p & ADDR_NO_RANDOMIZE) &&
	    personality((unsigned int)p | ADDR_NO_RANDOMIZE) != -1)
		execv("/proc/self/exe", argv);
}

/**
 * core_init - take the machine into our hands: lock, guardian, signals, clock
 *
 * Ends the program when another folio-measure holds the lock. Also turns off
 * khugepaged's scanning, so that nothing but the program changes its folios.
 */
void core_init(void)
{
	struct sched_param sp = { 0 };
	char val[64];
	unsigned int i;
	int lock;

	pgsize = (size_t)sysconf(_SC_PAGESIZE);
	pmdsize = setting_get(THP_DIR "/hpage_pmd_size", val, sizeof(val)) ?
		  strtoul(val, NULL, 10) : 2 * MB;

	/* held by the guardian too, so until everything is back in its place */
	lock = open(THP_DIR, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (lock >= 0 && flock(lock, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK) {
		fprintf(stderr, "folio-measure: another folio-measure is at work here\n");
		exit(1);
	}
	start_guardian(lock);
	for (i = 0; i < ARRAY_SIZE(caught); i++)
		signal(caught[i], on_signal);

	/*
	 * A child that wakes up must not preempt what is being timed: tasks of
	 * the batch class never do. No privilege is needed for it.
	 */
	sched_setscheduler(0, SCHED_BATCH, &sp);

	calibrate_clock();
	calibrate_copy();

	if (is_root())
		khugepaged_pause();
	/*
	 * How many pages lie ready in the per-CPU lists depends on all that was
	 * freed before, by up to some percent of a case that allocates. Short
	 * lists of a fixed length make every case begin alike.
	 */
	if (in_lab())
		setting_set("/proc/sys/vm/percpu_pagelist_high_fraction", "100000000");
}

/**
 * core_exit - put everything back; returns when it is
 */
void core_exit(void)
{
	put_back();
}

/**
 * setting_get - read a sysfs file's value
 * @path: the file
 * @val: gets the value; of a list of choices, the one in brackets
 * @len: size of @val
 *
 * Return: false when it cannot be read.
 */
bool setting_get(const char *path, char *val, size_t len)
{
	char buf[256], *from = buf, *end;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return false;
	n = read(fd, buf, sizeof(buf) - 1);
	close(fd);
	if (n < 0)
		return false;
	buf[n] = '\0';
	buf[strcspn(buf, "\n")] = '\0';
	if (strchr(buf, '[') && (end = strchr(buf, ']')) && end > strchr(buf, '[')) {
		from = strchr(buf, '[') + 1;
		*end = '\0';
	}
	snprintf(val, len, "%s", from);
	return true;
}

/**
 * setting_writable - could setting_set() change this file?
 */
bool setting_writable(const char *path)
{
	return access(path, W_OK) == 0;
}

static struct undo *undo_new(enum undo_kind kind, const char *path)
{
	struct undo *u;

	if (undo->n == MAX_UNDO || strlen(path) >= sizeof(u->path))
		return NULL;
	u = &undo->u[undo->n];
	u->kind = kind;
	strcpy(u->path, path);
	return u;
}

/* The entry counts from here on: all of it must be visible before. */
static void undo_commit(void)
{
	__atomic_store_n(&undo->n, undo->n + 1, __ATOMIC_RELEASE);
}

/**
 * setting_set - change a sysfs file's value until the program ends
 * @path: the file
 * @val: the value wanted
 *
 * Return: whether the file now has that value.
 */
bool setting_set(const char *path, const char *val)
{
	struct undo *u;
	unsigned int i;
	char old[64];

	if (!setting_get(path, old, sizeof(old)))
		return false;
	if (!strcmp(old, val))
		return true;
	if (!setting_writable(path))
		return false;
	for (i = 0; i < undo->n; i++)
		if (undo->u[i].kind == UNDO_WRITE && !strcmp(undo->u[i].path, path))
			break;
	if (i == undo->n) {
		u = undo_new(UNDO_WRITE, path);
		if (!u)
			return false;
		strcpy(u->val, old);
		undo_commit();
	}
	return setting_write(path, val);
}

/**
 * undo_write - have something written when the program ends
 * @path: the file
 * @val: what is written to it
 */
void undo_write(const char *path, const char *val)
{
	struct undo *u = undo_new(UNDO_WRITE, path);

	if (u) {
		strcpy(u->val, val);
		undo_commit();
	}
}

/**
 * undo_swapoff - have a swap device turned off when the program ends
 * @path: the device; called before swapon()
 */
void undo_swapoff(const char *path)
{
	if (undo_new(UNDO_SWAPOFF, path))
		undo_commit();
}

/**
 * minor_faults - page faults of this process so far that needed no I/O
 */
uint64_t minor_faults(void)
{
	struct rusage ru;

	getrusage(RUSAGE_SELF, &ru);
	return (uint64_t)ru.ru_minflt;
}

/* In the child of every fork: it must neither undo nor outlive anything. */
static void become_child(pid_t parent)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(caught); i++)
		signal(caught[i], SIG_DFL);
	if (guardian_fd >= 0)
		close(guardian_fd);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
}

/**
 * child_start - fork a child that stays alive until child_stop()
 * @c: gets the child
 * @prepare: what it does first, or NULL; its success is awaited
 * @arg: for @prepare
 *
 * Return: false when there is no child, or @prepare failed.
 */
bool child_start(struct child *c, child_fn prepare, void *arg)
{
	int go[2], ready[2];
	pid_t parent = getpid();
	uint64_t from, to;
	char byte = 0;
	bool ok;

	if (pipe2(go, O_CLOEXEC))
		return false;
	if (pipe2(ready, O_CLOEXEC)) {
		close(go[0]);
		close(go[1]);
		return false;
	}
	fflush(NULL);
	from = now();
	c->pid = fork();
	to = now();
	if (!c->pid) {
		become_child(parent);
		close(go[1]);
		close(ready[0]);
		byte = !prepare || prepare(arg);
		if (write(ready[1], &byte, 1) != 1)
			_exit(1);
		while (read(go[0], &byte, 1) < 0 && errno == EINTR)
			;
		_exit(0);
	}
	close(go[0]);
	close(ready[1]);
	c->go = go[1];
	c->ready = ready[0];
	if (c->pid < 0) {
		close(c->go);
		close(c->ready);
		return false;
	}
	the_child = c->pid;
	c->fork_time = elapsed(from, to);
	ok = read(c->ready, &byte, 1) == 1 && byte;
	if (!ok)
		child_stop(c);
	return ok;
}

/**
 * child_stop - let a child end and wait until it has
 */
bool child_stop(struct child *c)
{
	int status;
	bool ok;

	close(c->go);
	ok = waitpid(c->pid, &status, 0) == c->pid && status == 0;
	close(c->ready);
	the_child = 0;
	return ok;
}

/**
 * fork_and_wait - a child that ends at once, as a snapshot's does in the end
 */
bool fork_and_wait(void)
{
	struct child c;

	return child_start(&c, NULL, NULL) && child_stop(&c);
}

// SPDX-License-Identifier: GPL-2.0
/*
 * Programs that are started, watched and ended; folio sizes for all of them.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "workload.h"

#define LOG	WORKDIR "/log"
#define PATIENCE	1200	/* seconds of the guest's clock until a program hangs */

static volatile sig_atomic_t watched;

/**
 * sizes_always - let the memory of every program come in folios of one size
 * @kb: the size; a page's size turns transparent huge pages off
 */
bool sizes_always(unsigned int kb)
{
	char path[128];
	unsigned int k;
	bool ok = true;

	for (k = 2 * (unsigned int)(pgsize / KB); k <= pmdsize / KB; k *= 2) {
		snprintf(path, sizeof(path), THP_DIR "/hugepages-%ukB/enabled", k);
		if (access(path, F_OK))
			continue;
		ok &= setting_set(path, k == kb ? "always" : "never");
	}
	return ok;
}

/* A program that does not end is ended; what waits for it fails. */
static void on_alarm(int sig)
{
	(void)sig;
	if (watched > 0)
		kill(-watched, SIGKILL);
}

/**
 * program_start - start a program of PROGRAMS in a process group of its own
 * @p: gets the program
 * @w: the case it runs for
 * @argv: its arguments; VAR=VALUE before the name go to its environment
 *
 * Return: false after a failure was filed.
 */
bool program_start(struct program *p, const struct where *w, char *const argv[])
{
	pid_t parent = getpid();
	char path[128];
	int fd, vars = 0;

	p->w = w;
	while (strchr(argv[vars], '='))
		vars++;
	p->name = argv[vars];
	fflush(NULL);
	p->pid = fork();
	if (p->pid < 0) {
		fail(w, "fork: %s", strerror(errno));
		return false;
	}
	if (!p->pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
		setpgid(0, 0);
		fd = open(LOG, O_WRONLY | O_CREAT | O_TRUNC, 0600);
		if (fd < 0 || dup2(fd, 1) < 0 || dup2(fd, 2) < 0)
			_exit(126);
		close(0);
		open("/dev/null", O_RDONLY);
		for (; strchr(*argv, '='); argv++)
			putenv(*argv);
		snprintf(path, sizeof(path), PROGRAMS "/%s", p->name);
		execv(path, argv);
		dprintf(2, "%s: %s\n", path, strerror(errno));
		_exit(127);
	}
	setpgid(p->pid, p->pid);
	watched = p->pid;
	signal(SIGALRM, on_alarm);
	alarm(PATIENCE);
	return true;
}

/**
 * program_log - the last line a program has printed
 */
const char *program_log(void)
{
	static char last[200];
	char line[200];
	FILE *f = fopen(LOG, "r");

	snprintf(last, sizeof(last), "(it printed nothing)");
	while (f && fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = '\0';
		if (*line)
			strcpy(last, line);
	}
	if (f)
		fclose(f);
	return last;
}

/**
 * program_end - wait for a program to end, and end well
 * @p: the program
 * @used: gets what it used, insns apart; may be NULL
 *
 * Return: false after a failure was filed.
 */
bool program_end(struct program *p, struct used *used)
{
	struct rusage ru;
	int status;

	while (wait4(p->pid, &status, 0, &ru) < 0)
		if (errno != EINTR)
			return false;
	alarm(0);
	watched = 0;
	p->pid = 0;
	if (used)
		used->faults = (uint64_t)ru.ru_minflt;
	if (WIFEXITED(status) && !WEXITSTATUS(status))
		return true;
	if (WIFSIGNALED(status))
		fail(p->w, "%s was ended by signal %d; last: %s", p->name, WTERMSIG(status),
		     program_log());
	else
		fail(p->w, "%s ended with status %d; last: %s", p->name, WEXITSTATUS(status),
		     program_log());
	return false;
}

/**
 * program_kill - end a program whatever it does, and wait for it
 */
void program_kill(struct program *p)
{
	if (!p->pid)
		return;
	kill(-p->pid, SIGKILL);
	while (waitpid(p->pid, NULL, 0) < 0 && errno == EINTR)
		;
	alarm(0);
	watched = 0;
	p->pid = 0;
}

/**
 * program_run - run a program from start to end
 */
bool program_run(const struct where *w, char *const argv[], struct used *used)
{
	struct program p;
	uint64_t from = now();

	if (!program_start(&p, w, argv) || !program_end(&p, used))
		return false;
	used->insns = elapsed(from, now());
	return true;
}

/* ---- what a process has ---------------------------------------------------- */

/* The first bytes of a file under /proc/PID; false when there is no such process. */
static bool proc_read(pid_t pid, const char *name, char *buf, size_t len)
{
	char path[64];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = read(fd, buf, len - 1);
	close(fd);
	if (n < 0)
		return false;
	buf[n] = '\0';
	return true;
}

/**
 * process_faults - page faults of a process so far that needed no I/O
 */
uint64_t process_faults(pid_t pid)
{
	unsigned long long n = 0;
	char buf[512], *at;

	/* the name, in parentheses, may hold anything */
	if (proc_read(pid, "stat", buf, sizeof(buf)) && (at = strrchr(buf, ')')))
		sscanf(at + 1, " %*c %*d %*d %*d %*d %*d %*u %llu", &n);
	return n;
}

/**
 * process_has_memory - false from the moment its exit has given it up
 */
bool process_has_memory(pid_t pid)
{
	char buf[128];

	return proc_read(pid, "statm", buf, sizeof(buf)) && strtoul(buf, NULL, 10) > 0;
}

/**
 * process_child - a child of a process' first thread, or 0
 */
pid_t process_child(pid_t pid)
{
	char name[64], buf[128];

	snprintf(name, sizeof(name), "task/%d/children", pid);
	return proc_read(pid, name, buf, sizeof(buf)) ? atoi(buf) : 0;
}

/* Add what a range of a process' memory is in; @m's fields are still sums of pages. */
static void range_memory(struct memory *m, double *pages, const struct snapshot *s)
{
	uint64_t first = 0, end = 0, pfn;
	size_t i, kb = 0, per;

	for (i = 0; s->pfns && i < s->pages; i++) {
		if (!(s->pme[i] & PM_PRESENT))
			continue;
		pfn = PM_PFN(s->pme[i]);
		if (pfn < first || pfn >= end) {
			kb = snapshot_folio_kb(s, i);
			per = kb * KB / pgsize ? kb * KB / pgsize : 1;
			first = pfn - pfn % per;
			end = first + per;
		}
		*pages += 1;
		m->large_share += kb >= 64;
		m->folios_per_mib += 1.0 / (double)(end - first);
	}
}

/**
 * process_memory - the folios that a process' anonymous memory is in
 *
 * Both fields are -1 when they cannot be told.
 */
struct memory process_memory(pid_t pid)
{
	struct memory m = { 0 };
	unsigned long from, to;
	char path[64], line[512], mode[8], name[256];
	struct snapshot s;
	double pages = 0;
	int pagemap;
	FILE *maps;

	snprintf(path, sizeof(path), "/proc/%d/pagemap", pid);
	pagemap = open(path, O_RDONLY | O_CLOEXEC);
	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	maps = fopen(path, "r");
	while (maps && pagemap >= 0 && fgets(line, sizeof(line), maps)) {
		name[0] = '\0';
		if (sscanf(line, "%lx-%lx %7s %*s %*s %*s %255s", &from, &to, mode, name) < 3)
			continue;
		if (mode[1] != 'w' || (name[0] && strcmp(name, "[heap]")))
			continue;
		if (!snapshot_of(&s, pagemap, (void *)from, to - from))
			continue;
		range_memory(&m, &pages, &s);
		snapshot_free(&s);
	}
	if (maps)
		fclose(maps);
	if (pagemap >= 0)
		close(pagemap);
	if (!pages)
		return (struct memory){ -1, -1 };
	m.large_share /= pages;
	m.folios_per_mib /= pages * (double)pgsize / (double)MB;
	return m;
}

/**
 * anon_kb - anonymous memory that is mapped anywhere on the machine, KiB
 */
size_t anon_kb(void)
{
	char line[128];
	size_t kb = 0;
	FILE *f = fopen("/proc/meminfo", "r");

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "AnonPages: %zu", &kb) == 1)
			break;
	if (f)
		fclose(f);
	return kb;
}

/**
 * rows_ops - throughput, from the cost of an operation
 * @per_op: the series of its costs
 *
 * Operations per 10^9 instructions; where the clock is a clock, per second.
 */
void rows_ops(const struct where *w, const struct series *per_op)
{
	struct series ops = {
		.min = 1e9 / per_op->min,
		.max = 1e9 / per_op->min * (per_op->max / per_op->min),
		.n = per_op->n,
	};

	row_series(w, "ops_per_ginsns", &ops);
}

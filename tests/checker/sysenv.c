// SPDX-License-Identifier: GPL-2.0
/*
 * The system around the processes: a memcg, zram swap, THP sizes, KSM, the knobs
 * of the paths under test.  What is absent is left out; what is changed is put back.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/swap.h>
#include <time.h>
#include <unistd.h>
#include "chk.h"

#define THP "/sys/kernel/mm/transparent_hugepage/"

static char cg[64];
static char sizes[16][32];
static unsigned int nsizes;
static bool have_swap;
static struct { char path[256], val[256]; } saved[64];
static unsigned int nsaved;

static const char *const thp_vals[] = { "always", "always", "madvise", "never", "inherit" };
static const struct { const char *name, *vals[5]; } knobs[] = {
	{ "wp_reuse", { "never", "block", "whole", "adaptive", "adaptive" } },
	{ "wp_copy", { "never", "auto", "always", "always", "auto" } },
	{ "wp_copy_max_kb", { "16", "64", "256", "2048", "64" } },
	{ "mincore_batch", { "0", "1", "1", "1", "1" } },
	{ "madv_free_batch", { "0", "1", "1", "1", "1" } },
};
#define NKNOBS (sizeof(knobs) / sizeof(knobs[0]))

static int put(const char *val, const char *fmt, ...)
{
	char path[512];
	va_list ap;
	ssize_t r;
	int fd;

	va_start(ap, fmt);
	vsnprintf(path, sizeof(path), fmt, ap);
	va_end(ap);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	r = write(fd, val, strlen(val));
	close(fd);
	return r < 0 ? -1 : 0;
}

static long get(char *buf, size_t len, const char *fmt, ...)
{
	char path[512];
	va_list ap;
	ssize_t r;
	int fd;

	va_start(ap, fmt);
	vsnprintf(path, sizeof(path), fmt, ap);
	va_end(ap);
	buf[0] = 0;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	r = read(fd, buf, len - 1);
	close(fd);
	if (r < 0)
		return -1;
	buf[r] = 0;
	return atol(buf);
}

/* Remember a setting as it is; of "a [b] c" the one in brackets. */
static void save(const char *path)
{
	char buf[256], *s = buf, *e;

	if (nsaved == 64 || get(buf, sizeof(buf), "%s", path) == -1)
		return;
	e = strchr(buf, '[');
	if (e) {
		s = e + 1;
		e = strchr(s, ']');
	} else {
		e = strchr(s, '\n');
	}
	if (e)
		*e = 0;
	snprintf(saved[nsaved].path, sizeof(saved[0].path), "%s", path);
	snprintf(saved[nsaved++].val, sizeof(saved[0].val), "%s", s);
}

static void set(const char *path, const char *val)
{
	save(path);
	put(val, "%s", path);
}

static void setup_swap(void)
{
	char buf[256];

	if (get(buf, sizeof(buf), "/proc/swaps") >= 0 && strchr(buf, '/')) {
		have_swap = true;	/* somebody's: used, never turned off */
		return;
	}
	if (put("256M", "/sys/block/zram0/disksize"))
		return;
	if (access("/dev/zram0", F_OK))
		return;
	if (system("mkswap /dev/zram0 >/dev/null 2>&1") == 0 && swapon("/dev/zram0", 0) == 0)
		have_swap = true;
}

static int size_cmp(const void *a, const void *b)
{
	return atoi((const char *)a + 10) - atoi((const char *)b + 10);
}

void env_setup(void)
{
	struct dirent *d;
	char path[300];
	DIR *dir;
	size_t i;

	dir = opendir(THP);
	while (dir && (d = readdir(dir)))
		if (!strncmp(d->d_name, "hugepages-", 10) && atoi(d->d_name + 10) <= 2048 &&
		    nsizes < 16)
			snprintf(sizes[nsizes++], 32, "%.31s", d->d_name);
	if (dir)
		closedir(dir);
	qsort(sizes, nsizes, sizeof(sizes[0]), size_cmp);
	for (i = 0; i < nsizes; i++) {
		snprintf(path, sizeof(path), THP "%.31s/enabled", sizes[i]);
		save(path);
		snprintf(path, sizeof(path), THP "%.31s/shmem_enabled", sizes[i]);
		save(path);
	}
	for (i = 0; i < NKNOBS; i++) {
		snprintf(path, sizeof(path), THP "%s", knobs[i].name);
		save(path);
	}
	set(THP "enabled", "always");
	set(THP "khugepaged/scan_sleep_millisecs", opt_digest_fd >= 0 ? "100000" : "20");
	set(THP "khugepaged/alloc_sleep_millisecs", "20");
	set(THP "khugepaged/pages_to_scan", "4096");
	save("/sys/kernel/mm/ksm/run");
	set("/sys/kernel/mm/ksm/pages_to_scan", "1000");
	set("/sys/kernel/mm/ksm/sleep_millisecs", "10");
	set("/proc/sys/vm/overcommit_memory", "1");
	if (opt_digest_fd < 0)
		setup_swap();
}

void env_restore(void)
{
	unsigned int i;

	for (i = nsaved; i-- > 0;)
		put(saved[i].val, "%s", saved[i].path);
	if (cg[0])
		rmdir(cg);
}

/* Each episode begins alike: all sizes on, knobs at their defaults, no limit. */
void env_episode(void)
{
	unsigned int i, j;
	char path[512];

	put("0", "/sys/kernel/mm/ksm/run");
	for (i = 0; i < nsizes; i++)
		put("always", THP "%.31s/enabled", sizes[i]);
	for (i = 0; i < NKNOBS; i++) {
		snprintf(path, sizeof(path), THP "%s", knobs[i].name);
		for (j = 0; j < nsaved; j++)
			if (!strcmp(saved[j].path, path))
				put(saved[j].val, "%s", path);
	}
	if (!cg[0]) {
		put("+memory", "/sys/fs/cgroup/cgroup.subtree_control");
		snprintf(cg, sizeof(cg), "/sys/fs/cgroup/checker.%d", getpid());
		if (mkdir(cg, 0755) && errno != EEXIST)
			snprintf(cg, sizeof(cg), "%s", "/nonexistent");
	}
	put("max", "%s/memory.max", cg);
}

void env_join(void)
{
	char pid[16];

	snprintf(pid, sizeof(pid), "%d", getpid());
	put(pid, "%s/cgroup.procs", cg);
}

long env_oom_kills(void)
{
	char buf[512], *s;

	get(buf, sizeof(buf), "%s/memory.events", cg);
	s = strstr(buf, "oom_kill ");
	return s ? atol(s + 9) : 0;
}

static const char *thp_file(const struct op *op)
{
	return op->t == OP_THP ? "enabled" : "shmem_enabled";
}

/* How an op of the environment reads, for the reproducer. */
void env_describe(const struct op *op, char *buf, size_t len)
{
	unsigned int i = op->v % (nsizes ? nsizes : 1), k = op->v % NKNOBS;

	buf[0] = 0;
	switch (op->t) {
	case OP_THP:
	case OP_SHMEM_THP:
		if (nsizes)
			snprintf(buf, len, "put(\"" THP "%s/%s\", \"%s\");", sizes[i],
				 thp_file(op), thp_vals[(op->v >> 8) % 5]);
		break;
	case OP_KNOB:
		snprintf(buf, len, "put(\"" THP "%s\", \"%s\");", knobs[k].name,
			 knobs[k].vals[(op->v >> 8) % 5]);
		break;
	case OP_COMPACT:
		snprintf(buf, len, "put(\"/proc/sys/vm/compact_memory\", \"1\");");
		break;
	case OP_KSM:
		snprintf(buf, len, "put(\"/sys/kernel/mm/ksm/run\", \"%u\");", op->v & 1);
		break;
	case OP_PAUSE:
		snprintf(buf, len, "usleep(3000);");
		break;
	case OP_RECLAIM:
	case OP_MEMLIMIT:
	case OP_SWAPCYCLE:
		snprintf(buf, len, "/* %s %u: needs a memcg and swap */",
			 op_info[op->t].name, op->v);
		break;
	}
}

int env_do(const struct op *op, pid_t pid)
{
	unsigned int k = op->v % NKNOBS;
	struct timespec ts = { 0, 3000000 };
	char buf[160];
	long use;

	switch (op->t) {
	case OP_SWAPCYCLE:
		if (!have_swap || swapoff("/dev/zram0"))
			return -1;
		return swapon("/dev/zram0", 0);
	case OP_RECLAIM:
		snprintf(buf, sizeof(buf), "%uM", op->v & 31);
		put(buf, "%s/memory.reclaim", cg);
		return 0;
	case OP_MEMLIMIT:
		use = get(buf, sizeof(buf), "%s/memory.current", cg);
		if (op->v & 1 || use < (32 << 20) || !have_swap)
			return put("max", "%s/memory.max", cg);
		snprintf(buf, sizeof(buf), "%ld", use / 4 * 3);
		return put(buf, "%s/memory.max", cg);
	case OP_COMPACT:
		return put("1", "/proc/sys/vm/compact_memory");
	case OP_THP:
	case OP_SHMEM_THP:
		if (!nsizes)
			return -1;
		return put(thp_vals[(op->v >> 8) % 5], THP "%s/%s",
			   sizes[op->v % nsizes], thp_file(op));
	case OP_KNOB:
		return put(knobs[k].vals[(op->v >> 8) % 5], THP "%s", knobs[k].name);
	case OP_KSM:
		return put(op->v & 1 ? "1" : "0", "/sys/kernel/mm/ksm/run");
	case OP_SPLIT:
		if (!pid)
			return -1;
		snprintf(buf, sizeof(buf), "%d,0x%lx,0x%lx,%u", pid,
			 (unsigned long)ADDR(op->a), (unsigned long)ADDR(op->a + op->n),
			 op->v % 9);
		put(buf, "/sys/kernel/debug/split_huge_pages");
		return 0;
	case OP_PAUSE:
		nanosleep(&ts, NULL);
		return 0;
	}
	return -1;
}

static long stat_of(const char *name)
{
	char buf[4096], key[40], *s;

	get(buf, sizeof(buf), "%s/memory.stat", cg);
	snprintf(key, sizeof(key), "%s ", name);
	for (s = buf; s && strncmp(s, key, strlen(key)); s = s ? strchr(s, '\n') : s, s = s ? s + 1 : s)
		;
	return s ? atol(s + strlen(key)) : 0;
}

/* All processes are gone: so must be their memory (counters lag a little). */
bool env_memory_back(char *msg, size_t len)
{
	struct timespec ts = { 0, 50000000 };
	long anon = 0, swap = 0;
	char buf[64];
	int i;

	if (access(cg, F_OK))
		return true;
	for (i = 0; i < 100; i++) {
		anon = stat_of("anon");
		swap = get(buf, sizeof(buf), "%s/memory.swap.current", cg);
		if (anon <= 512 << 10 && swap <= 128 << 10)
			return true;
		nanosleep(&ts, NULL);
	}
	snprintf(msg, len, "memory did not come back: anon %ld, swap %ld bytes", anon, swap);
	return false;
}

// SPDX-License-Identifier: GPL-2.0
/*
 * The system around the processes: a memcg, zram swap, THP sizes, KSM, the knobs
 * of the paths under test.  What is absent is left out; what is changed is put back.
 */
#include "chk.h"

#include <dirent.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/swap.h>
#include <time.h>

static char cg[64];
static char sizes[16][32];
static unsigned int nsizes;
static bool our_swap;	/* made here: may be turned off and on */

#define LRU_GEN "../lru_gen/enabled"	/* beside the paths' own, where the kernel has it */
static const char *const thp_vals[] = { "always", "always", "madvise", "never", "inherit" };
static const struct { const char *name, *vals[5]; } knobs[] = {
	{ "wp_reuse", { "never", "block", "whole", "adaptive", "adaptive" } },
	{ "wp_copy", { "never", "auto", "always", "always", "auto" } },
	{ "wp_copy_max_kb", { "16", "64", "256", "2048", "64" } },
	{ "wp_copy_dense_percent", { "50", "60", "80", "100", "70" } },
	{ "mincore_batch", { "0", "1", "1", "1", "1" } },
	{ "madv_free_batch", { "0", "1", "1", "1", "1" } },
	{ LRU_GEN, { "n", "n", "y", "y", "y" } },
};
#define NKNOBS ARRAY_SIZE(knobs)
static char knob_default[NKNOBS][16];

static int put(const char *val, const char *fmt, ...)
{
	char path[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(path, sizeof(path), fmt, ap);
	va_end(ap);
	return file_write(path, val) ? -1 : 0;
}

/* What a file of the memcg says. */
static long cg_get(char *buf, size_t len, const char *name)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", cg, name);
	return file_read(path, buf, len) < 0 ? -1 : atol(buf);
}

static int size_cmp(const void *a, const void *b)
{
	return atoi((const char *)a + 10) - atoi((const char *)b + 10);
}

/* Put back at exit, as all settings. */
static void will_change(const char *path)
{
	char val[128];

	if (file_read(path, val, sizeof(val)) > 0)
		setting(path, selected_word(val));
}

void env_setup(void)
{
	struct dirent *d;
	char path[300];
	DIR *dir;
	size_t i;

	dir = opendir(THP_DIR);
	while (dir && (d = readdir(dir)))
		if (!strncmp(d->d_name, "hugepages-", 10) && atoi(d->d_name + 10) <= 2048 &&
		    nsizes < 16)
			snprintf(sizes[nsizes++], 32, "%.31s", d->d_name);
	if (dir)
		closedir(dir);
	qsort(sizes, nsizes, sizeof(sizes[0]), size_cmp);
	for (i = 0; i < nsizes; i++) {
		snprintf(path, sizeof(path), THP_DIR "%.31s/enabled", sizes[i]);
		will_change(path);
		snprintf(path, sizeof(path), THP_DIR "%.31s/shmem_enabled", sizes[i]);
		will_change(path);
	}
	for (i = 0; i < NKNOBS; i++) {
		snprintf(path, sizeof(path), THP_DIR "%s", knobs[i].name);
		will_change(path);
		if (have_knob(knobs[i].name))
			snprintf(knob_default[i], sizeof(knob_default[i]), "%.15s",
				 knob_get(knobs[i].name));
	}
	setting(THP_DIR "enabled", "always");
	setting(THP_DIR "khugepaged/scan_sleep_millisecs", opt_digest_fd >= 0 ? "100000" : "20");
	setting(THP_DIR "khugepaged/alloc_sleep_millisecs", "20");
	setting(THP_DIR "khugepaged/pages_to_scan", "4096");
	will_change("/sys/kernel/mm/ksm/run");
	setting("/sys/kernel/mm/ksm/pages_to_scan", "1000");
	setting("/sys/kernel/mm/ksm/sleep_millisecs", "10");
	setting("/proc/sys/vm/overcommit_memory", "1");
	if (opt_digest_fd < 0 && file_read("/proc/swaps", path, sizeof(path)) > 0 &&
	    !strchr(path, '/'))
		our_swap = need_swap() == KSFT_PASS;
}

void env_restore(void)
{
	settings_restore();
	if (cg[0])
		rmdir(cg);
}

/* Each episode begins alike: all sizes on, knobs at their defaults, no limit. */
void env_episode(void)
{
	unsigned int i;

	put("0", "/sys/kernel/mm/ksm/run");
	for (i = 0; i < nsizes; i++)
		put("always", THP_DIR "%.31s/enabled", sizes[i]);
	for (i = 0; i < NKNOBS; i++)
		if (knob_default[i][0])
			knob_set(knobs[i].name, knob_default[i]);
	/* whoever splits more folios gives back more pages that are all zero */
	if (S && S->frugal)
		knob_set("madv_free_batch", "0");
	if (S && S->lru_gen)
		knob_set(LRU_GEN, "y");
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

/* The memcg that process pid made for its own, now that it is gone. */
void env_forget(pid_t pid)
{
	char path[64];

	snprintf(path, sizeof(path), "/sys/fs/cgroup/checker.%d", pid);
	rmdir(path);
}

/* All processes, also those nobody knows of. */
void env_kill(void)
{
	put("1", "%s/cgroup.kill", cg);
}

long env_oom_kills(void)
{
	char buf[512], *s;

	cg_get(buf, sizeof(buf), "memory.events");
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
			snprintf(buf, len, "put(\"" THP_DIR "%s/%s\", \"%s\");", sizes[i],
				 thp_file(op), thp_vals[(op->v >> 8) % 5]);
		break;
	case OP_KNOB:
		snprintf(buf, len, "put(\"" THP_DIR "%s\", \"%s\");", knobs[k].name,
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
		if (!our_swap || swapoff("/dev/zram0"))
			return -1;
		return swapon("/dev/zram0", 0);
	case OP_RECLAIM:
		snprintf(buf, sizeof(buf), "%uM", op->v & 31);
		put(buf, "%s/memory.reclaim", cg);
		return 0;
	case OP_MEMLIMIT:
		use = cg_get(buf, sizeof(buf), "memory.current");
		if (op->v & 1 || use < (12 << 20) || !our_swap)
			return put("max", "%s/memory.max", cg);
		snprintf(buf, sizeof(buf), "%ld", use / 4 * 3);
		return put(buf, "%s/memory.max", cg);
	case OP_COMPACT:
		return put("1", "/proc/sys/vm/compact_memory");
	case OP_THP:
	case OP_SHMEM_THP:
		if (!nsizes)
			return -1;
		return put(thp_vals[(op->v >> 8) % 5], THP_DIR "%s/%s",
			   sizes[op->v % nsizes], thp_file(op));
	case OP_KNOB:
		return knob_set(knobs[k].name, knobs[k].vals[(op->v >> 8) % 5]) ? -1 : 0;
	case OP_KSM:
		return put(op->v & 1 ? "1" : "0", "/sys/kernel/mm/ksm/run");
	case OP_SPLIT:
		if (!pid)
			return -1;
		/* to order 0: for others the kernel warns where a folio is in swap */
		snprintf(buf, sizeof(buf), "%d,0x%lx,0x%lx,0", pid,
			 (unsigned long)ADDR(op->a), (unsigned long)ADDR(op->a + op->n));
		put(buf, "/sys/kernel/debug/split_huge_pages");
		return 0;
	case OP_PAUSE:
		nanosleep(&ts, NULL);
		return 0;
	}
	return -1;
}

/* How often folios have been migrated or split, in all of the system. */
unsigned long env_moves(void)
{
	static const char *const counts[] = { "pgmigrate_success ", "pgmigrate_fail " };
	static const char *const splits[] = { "split", "split_failed" };
	static char buf[32768];
	unsigned long sum = 0;
	unsigned int i, k;
	char path[160];

	if (file_read("/proc/vmstat", buf, sizeof(buf)) < 0)
		return 0;
	for (k = 0; k < 2; k++) {
		const char *s = strstr(buf, counts[k]);

		sum += s ? strtoul(s + strlen(counts[k]), NULL, 10) : 0;
	}
	for (i = 0; i < nsizes; i++)
		for (k = 0; k < 2; k++) {
			snprintf(path, sizeof(path), THP_DIR "%s/stats/%s", sizes[i], splits[k]);
			if (file_read(path, buf, sizeof(buf)) >= 0)
				sum += strtoul(buf, NULL, 10);
		}
	return sum;
}

/* Bytes that the processes have together. */
long env_memory(void)
{
	char buf[64];

	return cg_get(buf, sizeof(buf), "memory.current");
}

/* A file, as comments; lines that end in 0 say nothing. */
static void tell(const char *path)
{
	static char buf[16384];
	char *line, *next;

	if (file_read(path, buf, sizeof(buf)) < 0)
		return;
	for (line = buf; *line; line = next) {
		next = strchrnul(line, '\n');
		if (*next)
			*next++ = 0;
		if (strcmp(strchrnul(line, ' '), " 0"))
			printf("# %s: %s\n", path, line);
	}
}

/* What did not come back, and who may still have it: processes not gone, or that wait. */
static void tell_memory(void)
{
	static const char *const of_process[] = { "stat", "wchan", "stack" };
	char path[300], buf[512];
	struct dirent *d;
	unsigned int i;
	DIR *dir;

	snprintf(path, sizeof(path), "%s/memory.stat", cg);
	tell(path);
	tell("/proc/swaps");
	dir = opendir("/proc");
	while (dir && (d = readdir(dir))) {
		snprintf(path, sizeof(path), "/proc/%s/cgroup", d->d_name);
		if (atoi(d->d_name) <= 0 || file_read(path, buf, sizeof(buf)) < 0)
			continue;
		if (!strstr(buf, cg + strlen("/sys/fs/cgroup"))) {
			snprintf(path, sizeof(path), "/proc/%s/stat", d->d_name);
			if (file_read(path, buf, sizeof(buf)) < 0 || !strstr(buf, ") D "))
				continue;
		}
		for (i = 0; i < ARRAY_SIZE(of_process); i++) {
			snprintf(path, sizeof(path), "/proc/%s/%s", d->d_name, of_process[i]);
			tell(path);
		}
	}
	if (dir)
		closedir(dir);
	fflush(stdout);
}

/*
 * All processes are gone: so must be their memory, also what nobody maps. The
 * counters lag a little; some hundred KiB are the kernel's own. What was in
 * the swap cache and locked when its process went can stay there, with its slots, until
 * reclaim comes by, so that is asked to; none frees what has a reference too many.
 */
bool env_memory_back(char *msg, size_t len)
{
	struct timespec ts = { 0, 50000000 };
	long all = 0, swap = 0;
	char buf[64];
	int i;

	if (access(cg, F_OK))
		return true;
	for (i = 0; i < 100; i++) {
		all = env_memory();
		swap = cg_get(buf, sizeof(buf), "memory.swap.current");
		if (all <= 1 << 20 && swap == 0)
			return true;
		nanosleep(&ts, NULL);
		if (i >= 10)
			put("1M", "%s/memory.reclaim", cg);
	}
	tell_memory();
	snprintf(msg, len, "memory did not come back: %ld, swap %ld bytes", all, swap);
	return false;
}

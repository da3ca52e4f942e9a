// SPDX-License-Identifier: GPL-2.0
/* Command line, episodes, progress, the verdict. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "chk.h"

int pool_fd, scratch_fd;

static struct {
	uint64_t seed;
	unsigned long ops;
	unsigned int episode, jobs, seconds, threads;
	const char *replay, *digest;
	bool shrink, list;
} opt = { .seed = 1, .ops = 20000, .episode = 1500, .jobs = 1 };

struct tally { unsigned long ops, episodes, oom, unseen, by[OP_NR], skip[OP_NR], ns[OP_NR]; };

static void usage(FILE *to)
{
	fprintf(to,
"usage: checker [options]\n"
"Random operations on anonymous memory in a tree of processes, every byte compared\n"
"with a model.  Needs root; a scratch VM is the place for it: it changes THP, KSM\n"
"and swap settings (and puts them back).\n\n"
"  --seed N       first seed (1)\n"
"  --ops N        operations in all (20000)\n"
"  --episode N    operations of one process tree (1500)\n"
"  --procs N      processes at most, 1 to 8 (8)\n"
"  --jobs N       process trees side by side (1)\n"
"  --check N      compare everything every N operations (100)\n"
"  --duration S   stop after S seconds, whatever --ops says\n"
"  --threads[=N]  the other mode: N threads (4) write, the main thread disturbs\n"
"  --replay FILE  the sequence in FILE (\"-\": standard input) instead of a seed's\n"
"  --no-shrink    print a failing sequence as it is\n"
"  --shrink       shrink it (default)\n"
"  --digest FILE  after each operation a line: hash of bytes, permissions, mincore\n"
"  --verbose      each operation as it begins\n"
"  --list         the operations and their weights\n"
"exit status: 0 nothing found, 1 something found, 2 cannot run\n");
}

static void setup_shared(void)
{
	unsigned int i;

	S = mmap(NULL, sizeof(*S), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pool_fd = memfd_create("contents", MFD_CLOEXEC);
	scratch_fd = memfd_create("scratch", MFD_CLOEXEC);
	if (S == MAP_FAILED || pool_fd < 0 || ftruncate(pool_fd, (off_t)(NCONTENT * PG)) ||
	    ftruncate(scratch_fd, PINPAGES * PG)) {
		perror("checker");
		exit(2);
	}
	pool = mmap(NULL, NCONTENT * PG, PROT_READ | PROT_WRITE, MAP_SHARED, pool_fd, 0);
	/* charged to us, not to the processes whose memory is counted */
	for (i = 0; i < PINPAGES; i++)
		if (pwrite(scratch_fd, pool, PG, (off_t)(i * PG)) < 0)
			pool = MAP_FAILED;
	if (pool == MAP_FAILED) {
		perror("checker");
		exit(2);
	}
}

static void probe(void)
{
	unsigned long addr = (unsigned long)&opt;
	uint64_t pm = 0, before;
	struct chk_scan_arg arg = { .size = sizeof(arg) };
	struct chk_region reg;
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	int u = uffd_open_fd(false);

	S->has_uffd = u >= 0;
	if (u >= 0)
		close(u);
	u = uffd_open_fd(true);
	S->has_uffd_async = u >= 0;
	if (u >= 0)
		close(u);
	S->has_uring = ring_probe();
	arg.start = addr & ~(PG - 1);
	arg.end = arg.start + PG;
	arg.vec = (unsigned long)&reg;
	arg.vec_len = 1;
	arg.category_anyof_mask = CHK_IS_PRESENT;
	arg.return_mask = CHK_IS_PRESENT;
	S->has_scan = ioctl(fd, CHK_PAGEMAP_SCAN, &arg) >= 0;
	u = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
	before = u >= 0 && write(u, "4", 1) == 1;
	if (u >= 0)
		close(u);
	if (pread(fd, &pm, 8, (off_t)(addr / PG * 8)) == 8 && before && !(pm & PM_SOFT_DIRTY)) {
		*(volatile unsigned long *)&opt.ops = opt.ops;
		S->has_softdirty = pread(fd, &pm, 8, (off_t)(addr / PG * 8)) == 8 &&
				   (pm & PM_SOFT_DIRTY);
	}
	close(fd);
	void *ro = mmap(NULL, PG, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	fd = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
	S->has_force = fd >= 0 && pwrite(fd, "x", 1, (off_t)(unsigned long)ro) == 1;
	close(fd);
	munmap(ro, PG);
	printf("# uffd-wp %s, async %s, soft-dirty %s, PAGEMAP_SCAN %s, io_uring %s, forced writes %s\n",
	       S->has_uffd ? "yes" : "no", S->has_uffd_async ? "yes" : "no",
	       S->has_softdirty ? "yes" : "no", S->has_scan ? "yes" : "no",
	       S->has_uring ? "yes" : "no", S->has_force ? "yes" : "no");
}

static int found(struct op *ops, unsigned int n, uint64_t seed, struct failure *f)
{
	char line[128];

	op_print(line, sizeof(line), &f->op);
	printf("# FOUND: seed %lu, step %u (%s): %s\n", (unsigned long)seed, f->step, line,
	       f->msg);
	fflush(stdout);
	if (f->step + 1 < n)
		n = f->step + 1;
	if (opt.shrink && shrink(ops, &n, f)) {
		struct failure again;

		episode(ops, n, 0, false, &again);	/* for eff[] */
	}
	repro_print(ops, n, f);
	return 1;
}

/* Only one process of a tree runs at a time: a switch is cheaper than a wake-up. */
static void stay_on(unsigned int job)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN);
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(job % (n > 0 ? (unsigned int)n : 1), &set);
	sched_setaffinity(0, sizeof(set), &set);
}

/* One job: every jobs-th episode. */
static int run_job(unsigned int job, struct tally *t, volatile uint32_t *stop)
{
	unsigned long todo = (opt.ops + opt.episode - 1) / opt.episode, e;
	struct op *ops = calloc(opt.episode, sizeof(*ops));
	time_t t0 = time(NULL), tell = t0 + 10;
	struct failure f;
	unsigned int i;

	eff = calloc(opt.episode + 1, sizeof(*eff));
	stay_on(job);
	setup_shared();
	probe();
	for (e = job; e < todo && !*stop; e += opt.jobs) {
		uint64_t seed = opt.seed + e;
		unsigned int n = opt.episode;

		if (opt.seconds && time(NULL) - t0 >= (time_t)opt.seconds)
			break;
		if (opt.ops - e * opt.episode < n)
			n = (unsigned int)(opt.ops - e * opt.episode);
		if (episode(ops, n, seed, true, &f)) {
			*stop = 1;
			return found(ops, n, seed, &f);
		}
		t->ops += n;
		t->episodes++;
		if (time(NULL) >= tell) {
			printf("# job %u: %lu ops, %lu episodes, next seed %lu, %ld s\n", job,
			       t->ops, t->episodes, (unsigned long)(seed + opt.jobs),
			       (long)(time(NULL) - t0));
			fflush(stdout);
			tell = time(NULL) + 10;
		}
	}
	t->oom = stat_oom;
	t->unseen = S->unseen;
	for (i = 0; i < OP_NR; i++) {
		t->by[i] = stat_ops[i];
		t->skip[i] = stat_skip[i];
		t->ns[i] = stat_ns[i];
	}
	return 0;
}

static int replay(void)
{
	FILE *in = strcmp(opt.replay, "-") ? fopen(opt.replay, "r") : stdin;
	struct op *ops = calloc(100000, sizeof(*ops));
	struct failure f;
	unsigned int n = 0;
	char line[256];

	if (!in) {
		perror(opt.replay);
		return 2;
	}
	while (n < 100000 && fgets(line, sizeof(line), in))
		if (line[0] != '#' && line[0] != '\n' && op_parse(line, &ops[n++])) {
			fprintf(stderr, "checker: not an operation: %s", line);
			return 2;
		}
	eff = calloc(n + 1, sizeof(*eff));
	setup_shared();
	probe();
	if (episode(ops, n, 0, false, &f))
		return found(ops, n, 0, &f);
	printf("# replayed %u operations\n", n);
	return 0;
}

static int run(void)
{
	struct tally *t = mmap(NULL, 8 * sizeof(*t), PROT_READ | PROT_WRITE,
			       MAP_SHARED | MAP_ANONYMOUS, -1, 0), all = { 0 };
	volatile uint32_t *stop = mmap(NULL, PG, PROT_READ | PROT_WRITE,
				       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	unsigned int j, i;
	int st, r = 0;

	for (j = 0; j < opt.jobs; j++) {
		fflush(stdout);
		if (!fork()) {
			st = run_job(j, &t[j], stop);
			fflush(stdout);
			_exit(st);
		}
	}
	while (wait(&st) > 0)
		if (!WIFEXITED(st))
			r = 2;
		else if (WEXITSTATUS(st) > r)
			r = WEXITSTATUS(st);
	for (j = 0; j < opt.jobs; j++) {
		all.ops += t[j].ops;
		all.episodes += t[j].episodes;
		all.oom += t[j].oom;
		all.unseen += t[j].unseen;
		for (i = 0; i < OP_NR; i++) {
			all.by[i] += t[j].by[i];
			all.skip[i] += t[j].skip[i];
			all.ns[i] += t[j].ns[i];
		}
	}
	printf("# %lu ops in %lu episodes, seeds %lu to %lu, killed by the OOM killer %lu, none in pagemap though there %lu\n# done (not applicable, us each):",
	       all.ops, all.episodes, (unsigned long)opt.seed,
	       (unsigned long)(opt.seed + all.episodes - 1), all.oom, all.unseen);
	for (i = 0; i < OP_NR; i++)
		if (all.by[i] + all.skip[i])
			printf(" %s %lu(%lu, %lu)", op_info[i].name, all.by[i], all.skip[i],
			       all.by[i] ? all.ns[i] / 1000 / all.by[i] : 0);
	printf("\n");
	return r;
}

static void list_ops(void)
{
	unsigned int i;

	for (i = 0; i < OP_NR; i++)
		printf("%-12s %4u  %s\n", op_info[i].name, op_info[i].weight, op_info[i].what);
}

int main(int argc, char **argv)
{
	static const struct option lo[] = {
		{ "seed", 1, 0, 's' }, { "ops", 1, 0, 'o' }, { "episode", 1, 0, 'e' },
		{ "procs", 1, 0, 'p' }, { "jobs", 1, 0, 'j' }, { "check", 1, 0, 'c' },
		{ "duration", 1, 0, 'd' }, { "threads", 2, 0, 't' }, { "replay", 1, 0, 'r' },
		{ "shrink", 0, 0, 'S' }, { "no-shrink", 0, 0, 'N' }, { "digest", 1, 0, 'D' },
		{ "verbose", 0, 0, 'v' }, { "list", 0, 0, 'l' }, { "help", 0, 0, 'h' }, { 0 },
	};
	const char *what = "random operations";
	int c, r;

	opt.shrink = true;
	while ((c = getopt_long(argc, argv, "h", lo, NULL)) != -1) {
		switch (c) {
		case 's': opt.seed = strtoull(optarg, NULL, 0); break;
		case 'o': opt.ops = strtoul(optarg, NULL, 0); break;
		case 'e': opt.episode = (unsigned int)strtoul(optarg, NULL, 0); break;
		case 'p': opt_procs = (unsigned int)strtoul(optarg, NULL, 0); break;
		case 'j': opt.jobs = (unsigned int)strtoul(optarg, NULL, 0); break;
		case 'c': opt_check = (unsigned int)strtoul(optarg, NULL, 0); break;
		case 'd': opt.seconds = (unsigned int)strtoul(optarg, NULL, 0); break;
		case 't': opt.threads = optarg ? (unsigned int)strtoul(optarg, NULL, 0) : 4; break;
		case 'r': opt.replay = optarg; break;
		case 'S': opt.shrink = true; break;
		case 'N': opt.shrink = false; break;
		case 'D': opt.digest = optarg; break;
		case 'v': opt_verbose = true; break;
		case 'l': list_ops(); return 0;
		case 'h': usage(stdout); return 0;
		default: usage(stderr); return 2;
		}
	}
	if (optind < argc || !opt_procs || opt_procs > NPROC || !opt.jobs || opt.jobs > 8 ||
	    !opt.episode || opt.threads > 8) {
		usage(stderr);
		return 2;
	}
	if (geteuid()) {
		fprintf(stderr, "checker: needs root\n");
		return 2;
	}
	if (opt.digest) {
		opt_digest_fd = open(opt.digest, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
		if (opt_digest_fd < 0) {
			perror(opt.digest);
			return 2;
		}
		opt.jobs = 1;
	}
	printf("TAP version 13\n1..1\n");
	env_setup();
	if (opt.threads) {
		what = "threads of one process";
		r = threads_main(opt.seed, opt.threads, opt.seconds ? opt.seconds : 30);
	} else if (opt.replay) {
		what = "replay";
		r = replay();
	} else {
		r = run();
	}
	env_restore();
	printf("%s 1 checker: %s, seed %lu\n", r ? "not ok" : "ok", what, (unsigned long)opt.seed);
	printf("# Totals: pass:%d fail:%d xfail:0 xpass:0 skip:0 error:0\n", !r, !!r);
	return r;
}

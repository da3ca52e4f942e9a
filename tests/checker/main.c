// SPDX-License-Identifier: GPL-2.0
/* Command line, episodes, progress, the verdict. */
#include "chk.h"

#include <getopt.h>
#include <sched.h>
#include <time.h>
#include <tools/include/uapi/linux/fs.h>

int pool_fd, scratch_fd;

static struct {
	uint64_t seed;
	unsigned long ops;
	unsigned int episode, jobs, seconds, threads;
	const char *replay, *digest;
	bool shrink, soak;
} opt = { .seed = 1, .episode = 1500, .shrink = true };

/* What one job has done, seen by all. */
struct tally {
	unsigned long ops, oom, unseen, by[OP_NR], skip[OP_NR], ns[OP_NR];
	uint64_t seed;		/* of the episode it is at */
};

static struct shared {
	struct tally job[8];
	uint64_t next;		/* seed that nobody has begun */
	uint32_t stop;
} *J;

static void usage(FILE *to)
{
	fprintf(to,
"usage: checker [options]\n"
"Random operations on anonymous memory in a tree of processes, every byte compared\n"
"with a model; then threads of one process, which look for lost writes. Needs root;\n"
"a scratch VM is the place for it: it changes THP, KSM and swap settings (and puts\n"
"them back).\n\n"
"  --ops N        only the operations, N of them\n"
"  --threads[=N]  only the threads: N (4) write, the main thread disturbs\n"
"  --soak         both in turn, until something is found\n"
"  --duration S   or S seconds are over\n"
"  --seed N       first seed (1)\n"
"  --episode N    operations of one process tree (1500)\n"
"  --procs N      processes at most, 1 to 8 (8)\n"
"  --jobs N       process trees side by side, 1 to 8 (as many as CPUs)\n"
"  --check N      compare everything every N operations (200)\n"
"  --replay FILE  the sequence in FILE (\"-\": standard input) instead of a seed's\n"
"  --no-shrink    print a failing sequence as it is\n"
"  --swapoff      swapoff and swapon with several trees, too: stock 7.3.4 does not\n"
"                 stand that; with --jobs 1 and --replay they are there anyway\n"
"  --digest FILE  after each operation a line: hash of bytes, permissions, mincore;\n"
"                 without swap, KSM and what else happens at a time of its own\n"
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
	/*
	 * Charged to us, not to the processes whose memory is counted: khugepaged would
	 * charge it to the one it scans, wherever chance has aligned it to a huge page.
	 */
	if (pool != MAP_FAILED)
		madvise(pool, NCONTENT * PG, MADV_NOHUGEPAGE);
	for (i = 0; i < PINPAGES; i++)
		if (pwrite(scratch_fd, pool, PG, (off_t)(i * PG)) < 0)
			pool = MAP_FAILED;
	if (pool == MAP_FAILED) {
		perror("checker");
		exit(2);
	}
}

static void probe(bool say)
{
	unsigned long addr = (unsigned long)&opt;
	uint64_t pm = 0, before;
	struct pm_scan_arg arg = { .size = sizeof(arg) };
	struct page_region reg;
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
	arg.category_anyof_mask = PAGE_IS_PRESENT;
	arg.return_mask = PAGE_IS_PRESENT;
	S->has_scan = ioctl(fd, PAGEMAP_SCAN, &arg) >= 0;
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
	if (!say)
		return;
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

/* One job: takes the next seed until there are enough. */
static int run_job(unsigned int job, time_t end, uint64_t last)
{
	struct op *ops = calloc(opt.episode, sizeof(*ops));
	struct tally *t = &J->job[job];
	struct failure f;
	unsigned int i;

	eff = calloc(opt.episode + 1, sizeof(*eff));
	stay_on(job);
	setup_shared();
	probe(job == 0);
	while (!J->stop && (!end || time(NULL) < end)) {
		uint64_t seed = __atomic_fetch_add(&J->next, 1, __ATOMIC_SEQ_CST);
		unsigned int n = opt.episode;

		if (seed > last)
			break;
		if (seed == last && opt.ops % opt.episode)
			n = (unsigned int)(opt.ops % opt.episode);
		t->seed = seed;
		if (episode(ops, n, seed, true, &f)) {
			/* one is enough, and wants to be alone to be shrunk */
			if (__atomic_exchange_n(&J->stop, 1, __ATOMIC_SEQ_CST))
				return 1;
			return found(ops, n, seed, &f);
		}
		t->seed = 0;
		t->ops += f.step + 1;
		t->oom = stat_oom;
		t->unseen = S->unseen;
		for (i = 0; i < OP_NR; i++) {
			t->by[i] = stat_ops[i];
			t->skip[i] = stat_skip[i];
			t->ns[i] = stat_ns[i];
		}
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
	probe(true);
	if (episode(ops, n, 0, false, &f))
		return found(ops, n, 0, &f);
	printf("# replayed %u operations\n", n);
	return 0;
}

/* The sum of all jobs; seed: the first one that is not through. */
static struct tally sum_up(void)
{
	struct tally all = { .seed = J->next };
	unsigned int j, i;

	for (j = 0; j < opt.jobs; j++) {
		struct tally *t = &J->job[j];

		all.ops += t->ops;
		all.oom += t->oom;
		all.unseen += t->unseen;
		if (t->seed && t->seed < all.seed)
			all.seed = t->seed;
		for (i = 0; i < OP_NR; i++) {
			all.by[i] += t->by[i];
			all.skip[i] += t->skip[i];
			all.ns[i] += t->ns[i];
		}
	}
	return all;
}

static unsigned long ops_before;	/* in earlier rounds of --soak */
static time_t started;

static void tell(void)
{
	struct tally all = sum_up();
	unsigned long ops = ops_before + all.ops, s = (unsigned long)(time(NULL) - started);

	printf("# progress: %lu ops, %lu ops/s, next seed %lu\n", ops, ops / (s ? s : 1),
	       (unsigned long)all.seed);
	fflush(stdout);
}

static void tell_kinds(const struct tally *all)
{
	unsigned int i;

	printf("# done (not applicable, us each):");
	for (i = 0; i < OP_NR; i++)
		if (all->by[i] + all->skip[i])
			printf(" %s %lu(%lu, %lu)", op_info[i].name, all->by[i], all->skip[i],
			       all->by[i] ? all->ns[i] / 1000 / all->by[i] : 0);
	printf("\n");
}

/* The operations, for some seconds or as many as --ops says. Moves opt.seed on. */
static int run(unsigned int seconds)
{
	time_t now = time(NULL), end = seconds ? now + seconds : 0, next = now + 10;
	uint64_t last = opt.ops ? opt.seed + (opt.ops - 1) / opt.episode : UINT64_MAX;
	unsigned int j, left = opt.jobs;
	struct tally all;
	int st, r = 0;

	memset(J, 0, sizeof(*J));
	J->next = opt.seed;
	fflush(stdout);
	for (j = 0; j < opt.jobs; j++)
		if (!fork()) {
			st = run_job(j, end, last);
			fflush(stdout);
			_exit(st);
		}
	while (left) {
		pid_t pid = waitpid(-1, &st, WNOHANG);

		if (pid > 0) {
			left--;
			env_forget(pid);
			j = WIFEXITED(st) ? (unsigned int)WEXITSTATUS(st) : 2;
			r = (int)j > r ? (int)j : r;
			continue;
		}
		usleep(200000);
		if (time(NULL) >= next) {
			next += 10;
			tell();
		}
	}
	tell();
	all = sum_up();
	tell_kinds(&all);
	if (all.oom || all.unseen)
		printf("# killed by the OOM killer %lu, none in pagemap though there %lu\n",
		       all.oom, all.unseen);
	ops_before += all.ops;
	opt.seed = all.seed;
	return r;
}

/* In a process of their own, which joins the memcg that has the limits. */
static int run_threads(unsigned int seconds)
{
	pid_t pid;
	int st;

	fflush(stdout);
	pid = fork();
	if (!pid) {
		st = threads_main(opt.seed, opt.threads, seconds);
		fflush(stdout);
		_exit(st);
	}
	while (waitpid(pid, &st, 0) < 0 && errno == EINTR)
		;
	env_forget(pid);
	return WIFEXITED(st) ? WEXITSTATUS(st) : 2;
}

/*
 * A minute and a half of operations, ten seconds of threads, and so on. A clock
 * that is wrong, as in a VM on a busy machine, only changes the mixture.
 */
static int soak(void)
{
	int r;

	do {
		r = run(90);
		if (!r)
			r = run_threads(10);
	} while (!r && !(opt.seconds && time(NULL) - started >= (time_t)opt.seconds));
	return r;
}

static void list_ops(void)
{
	unsigned int i;

	for (i = 0; i < OP_NR; i++)
		printf("%-12s %4u  %s\n", op_info[i].name, op_info[i].weight, op_info[i].what);
}

static void report(int r, const char *what)
{
	if (r > 1)
		ksft_exit_fail_msg("%s: cannot run\n", what);
	ksft_test_result(!r, "%s\n", what);
}

int main(int argc, char **argv)
{
	static const struct option lo[] = {
		{ "seed", 1, 0, 's' }, { "ops", 1, 0, 'o' }, { "episode", 1, 0, 'e' },
		{ "procs", 1, 0, 'p' }, { "jobs", 1, 0, 'j' }, { "check", 1, 0, 'c' },
		{ "duration", 1, 0, 'd' }, { "threads", 2, 0, 't' }, { "replay", 1, 0, 'r' },
		{ "no-shrink", 0, 0, 'N' }, { "digest", 1, 0, 'D' }, { "soak", 0, 0, 'S' },
		{ "swapoff", 0, 0, 'w' }, { "verbose", 0, 0, 'v' }, { "list", 0, 0, 'l' }, { "help", 0, 0, 'h' }, { 0 },
	};
	const bool quick = getenv("WF_QUICK");
	bool all;
	int c;

	opt.jobs = (unsigned int)sysconf(_SC_NPROCESSORS_ONLN);
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
		case 'N': opt.shrink = false; break;
		case 'D': opt.digest = optarg; break;
		case 'S': opt.soak = true; break;
		case 'v': opt_verbose = true; break;
		case 'w': opt_swapoff = true; break;
		case 'l': list_ops(); return 0;
		case 'h': usage(stdout); return 0;
		default: usage(stderr); return 2;
		}
	}
	if (opt.jobs > 8)
		opt.jobs = 8;
	if (optind < argc || !opt_procs || opt_procs > NPROC || !opt.jobs || !opt.episode ||
	    opt.threads > 8 || !opt.seed) {
		usage(stderr);
		return 2;
	}
	if (opt.digest) {
		opt_digest_fd = open(opt.digest, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
		if (opt_digest_fd < 0) {
			perror(opt.digest);
			return 2;
		}
		opt.jobs = 1;
		opt.ops = opt.ops ? opt.ops : quick ? 3000 : 15000;
	}
	opt_swapoff |= opt.jobs == 1 || opt.replay;
	settings_begin();
	env_setup();
	J = mmap(NULL, sizeof(*J), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	started = time(NULL);
	all = !opt.ops && !opt.threads && !opt.replay && !opt.digest && !opt.soak;
	ksft_set_plan(all ? 2 : 1);
	if (all) {
		opt.ops = quick ? 15000 : 100000;
		opt.threads = 4;
	}
	if (opt.soak) {
		opt.threads = opt.threads ? opt.threads : 4;
		report(soak(), "operations and threads in turn");
	} else if (opt.replay) {
		report(replay(), "a sequence, replayed");
	} else {
		if (opt.ops)
			report(run(opt.seconds),
			       "random operations: every byte, permission and tracking bit as the model has it");
		if (opt.threads)
			report(run_threads(opt.seconds ? opt.seconds : quick ? 20 : 60),
			       "threads of one process: no write lost, none seen elsewhere");
	}
	env_restore();
	ksft_finished();
}

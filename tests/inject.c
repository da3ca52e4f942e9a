// SPDX-License-Identifier: GPL-2.0
/*
 * Allocations that fail, on purpose and by count: in write faults that copy, in
 * fork(), MADV_FREE and mincore(), and charges to a memory cgroup at its limit.
 * Whatever fails, no byte is wrong and nobody is killed. The kernel's fault
 * injection does it (CONFIG_FAIL_PAGE_ALLOC, CONFIG_FAILSLAB): "the n-th
 * allocation of this thread from here on", or a share of all of them.
 */
#include "common.h"

#define DEBUGFS		"/sys/kernel/debug/"
#define PAGES		DEBUGFS "fail_page_alloc/"
#define SLAB		DEBUGFS "failslab/"

/* "times" counts down from here with each failure. */
#define TIMES		1000000000

/* Written by the cases, added up over all of them. */
static struct {
	long allocations, charges;
} *total;

/* --- fault injection ------------------------------------------------------- */

static long number_in(const char *path)
{
	char buf[64];

	return file_read(path, buf, sizeof(buf)) < 0 ? -1 : atol(buf);
}

static void number_to(const char *path, unsigned long val)
{
	char buf[32];

	snprintf(buf, sizeof(buf), "%lu", val);
	file_write(path, buf);
}

static void injection_defaults(void)
{
	static const char * const dirs[] = { PAGES, SLAB };
	char path[100];

	for (int i = 0; i < 2; i++) {
		static const struct { const char *file, *val; } set[] = {
			{ "probability", "0" }, { "interval", "1" }, { "verbose", "0" },
			{ "task-filter", "Y" }, { "ignore-gfp-wait", "N" },
			{ "require-start", "0" }, { "require-end", "0xffffffffffffffff" },
			{ "stacktrace-depth", "32" },
		};

		for (size_t j = 0; j < ARRAY_SIZE(set); j++) {
			snprintf(path, sizeof(path), "%s%s", dirs[i], set[j].file);
			setting(path, set[j].val);
		}
	}
	setting(PAGES "ignore-gfp-highmem", "N");
	setting(PAGES "min-order", "0");
}

/* How many allocations have failed since they were counted last. */
static long count_failures(void)
{
	long n = 2L * TIMES - number_in(PAGES "times") - number_in(SLAB "times");

	number_to(PAGES "times", TIMES);
	number_to(SLAB "times", TIMES);
	return n;
}

/*
 * Write a number to a file of this thread in /proc. It is opened beforehand: when
 * allocations fail, so does open().
 */
static void tell(const char *file, unsigned int val, int *fd, pid_t *owner)
{
	char buf[64];

	if (*owner != getpid()) {
		if (*owner)
			close(*fd);
		snprintf(buf, sizeof(buf), "/proc/thread-self/%s", file);
		*fd = open(buf, O_RDWR | O_CLOEXEC);
		*owner = getpid();
	}
	snprintf(buf, sizeof(buf), "%u", val);
	if (pwrite(*fd, buf, strlen(buf), 0) < 0) {
		ksft_print_msg("%s: %s\n", file, strerror(errno));
		_exit(KSFT_FAIL);
	}
}

/* Do allocations of this process fail, by the set share? */
static void make_it_fail(bool on)
{
	static int fd;
	static pid_t owner;

	tell("make-it-fail", on, &fd, &owner);
}

/* The @n-th allocation of this thread from here on fails, once; 0: none. */
static void fail_nth(unsigned int n)
{
	static int fd;
	static pid_t owner;

	tell("fail-nth", n, &fd, &owner);
}

/* At the start of a case: as in main(), whatever the last one left behind. */
static void inject_start(void)
{
	number_to(PAGES "probability", 0);
	number_to(SLAB "probability", 0);
	file_write(PAGES "require-start", "0");
	file_write(PAGES "require-end", "0xffffffffffffffff");
	make_it_fail(false);
	count_failures();
}

/* At its end. */
static long inject_end(void)
{
	long n;

	number_to(PAGES "probability", 0);
	number_to(SLAB "probability", 0);
	n = count_failures();
	__atomic_add_fetch(&total->allocations, n, __ATOMIC_RELAXED);
	return n;
}

/* Of the kernel's text: from @symbol to the next one, for the stack filter. */
static bool text_range(const char *symbol, unsigned long *start, unsigned long *end)
{
	FILE *f = fopen("/proc/kallsyms", "re");
	unsigned long addr;
	char name[256], type;

	*start = *end = 0;
	while (f && fscanf(f, "%lx %c %255s%*[^\n]", &addr, &type, name) == 3) {
		if (*start && addr > *start && (!*end || addr < *end))
			*end = addr;
		if (!*start && !strcmp(name, symbol)) {
			*start = addr;
			*end = 0;
			rewind(f);
		}
	}
	if (f)
		fclose(f);
	return *start && *end;
}

/* --- memory ---------------------------------------------------------------- */

/* At least @pages pages, in folios of the layout. */
static int get(struct region *r, const struct layout *l, int pages)
{
	sizes_set(l->folio, "never");
	NEED(region_get(r, l, pages * PAGE > l->folio ? pages * PAGE / l->folio : 1));
	sizes_set(l->folio, "always");
	return KSFT_PASS;
}

static void put(struct region *r)
{
	munmap(r->mem, r->size);
}

static int rounds(int many)
{
	return quick() ? 1 : many;
}

/* --- cases ------------------------------------------------------------------ */

/*
 * Every page is written once, @stride pages from the last; in each fault one of
 * the first @nth allocations fails.
 */
static int copy_failing(const struct layout *l, int many, int stride, int nth)
{
	struct region r;
	struct peer p;

	inject_start();
	for (int round = 0; round < rounds(many); round++) {
		NEED(get(&r, l, quick() ? 64 : 512));
		NEED(peer_fork(&p));
		for (int i = 0; i < r.pages; i++) {
			int page = i * stride % r.pages;

			fail_nth(1 + (i + round) % nth);
			stamp_page(r.mem + page * PAGE, page, 1);
			fail_nth(0);
		}
		FAIL_STAMP(r.mem, 0, r.pages, 1, "parent");
		FAIL_IF(!peer_stamped(&p, r.mem, 0, r.pages, 0), "child");
		FAIL_IF(!peer_quit(&p), "child");
		put(&r);
	}
	FAIL_IF(!inject_end(), "no allocation failed");
	return KSFT_PASS;
}

/* In order: up to three sizes, then the single page. */
static int copy_nth(const struct layout *l, const char *mode)
{
	return copy_failing(l, 6, 1, 4);
}

/* At random, so that the dense rule of "auto" fills up: an odd stride, far. */
static int copy_random(const struct layout *l, const char *mode)
{
	return copy_failing(l, 3, 37, 9);
}

/* All that the new code asks for fails: it does what the old code did. */
static int copy_none(const struct layout *l, const char *mode)
{
	unsigned long start, end;
	struct region r;
	struct peer p;
	char buf[32];
	long n;

	if (!mode || !strcmp(mode, "never"))
		return skip("copies page by page, with no allocation of its own");
	if (!text_range("__wp_copy_large", &start, &end))
		return skip("no __wp_copy_large in /proc/kallsyms");
	inject_start();
	NEED(get(&r, l, 512));
	NEED(peer_fork(&p));
	snprintf(buf, sizeof(buf), "0x%lx", start);
	SYS(-!!file_write(PAGES "require-start", buf));
	snprintf(buf, sizeof(buf), "0x%lx", end);
	SYS(-!!file_write(PAGES "require-end", buf));
	number_to(PAGES "probability", 100);
	make_it_fail(true);
	n = stamp_faults(r.mem, 0, r.pages, 1);
	make_it_fail(false);
	FAIL_IF(n != r.pages, "%ld faults on %d pages", n, r.pages);
	for (int i = 0; i < r.pages; i++)
		FAIL_IF(!is_folios(r.mem + i * PAGE, PAGE, PAGE), "page %d is in a large folio", i);
	FAIL_STAMP(r.mem, 0, r.pages, 1, "parent");
	FAIL_IF(!peer_stamped(&p, r.mem, 0, r.pages, 0), "child");
	put(&r);
	n = inject_end();
	/* The first write to each block of 4 pages asks, but for the first few. */
	FAIL_IF(n < r.pages / 5, "%ld allocations failed", n);
	return KSFT_PASS;
}

static long charges_failed(void)
{
	long sum = 0, n;

	for (size_t s = 16 << 10; s <= MB2; s *= 2) {
		n = thp_stat(s, "wp_fault_fallback_charge");
		sum += n > 0 ? n : 0;
	}
	return sum;
}

/* The memory cgroup has room for single pages, once some are swapped out. */
static int copy_charge(const struct layout *l, const char *mode)
{
	struct region r;
	struct peer p;
	long before;

	NEED(need_swap());
	NEED(cgroup_enter());
	before = charges_failed();
	for (int round = 0; round < rounds(4); round++) {
		NEED(get(&r, l, 512));
		NEED(peer_fork(&p));
		FAIL_IF(cgroup_limit(cgroup_current() + 64 * 1024), "memory.max");
		stamp_range(r.mem, 0, r.pages, 1);
		FAIL_STAMP(r.mem, 0, r.pages, 1, "parent");
		FAIL_IF(cgroup_kills() > 0, "oom kill");
		cgroup_limit(-1);
		FAIL_IF(!peer_stamped(&p, r.mem, 0, r.pages, 0), "child");
		FAIL_IF(!peer_quit(&p), "child");
		put(&r);
	}
	before = charges_failed() - before;
	__atomic_add_fetch(&total->charges, before, __ATOMIC_RELAXED);
	FAIL_IF(mode && !strcmp(mode, "always") && !before, "no charge failed");
	return KSFT_PASS;
}

/* What was read only is zero; its anon_vma is one more thing that may fail. */
static int zero_nth(const struct layout *l, const char *mode)
{
	const int pages = 64;

	inject_start();
	sizes_set(0, "always");
	for (int n = 1; n <= rounds(4) * 8; n++) {
		char *mem = reserve(pages * PAGE);

		FAIL_IF(!mem || !mmap_anon(mem, pages * PAGE, PROT_READ | PROT_WRITE), "mmap");
		FAIL_IF(zero_bad(mem, pages) >= 0, "before");
		for (int i = n % 16; i < pages; i += 16) {
			fail_nth(1 + n / 2 % 5);
			stamp_page(mem + i * PAGE, i, 1);
			fail_nth(0);
		}
		for (int i = 0; i < pages; i++) {
			if (i % 16 == n % 16)
				FAIL_STAMP(mem + i * PAGE, i, 1, 1, "written");
			else
				FAIL_IF(zero_bad(mem + i * PAGE, 1) >= 0, "page %d", i);
		}
		munmap(mem, pages * PAGE);
	}
	FAIL_IF(!inject_end(), "no allocation failed");
	return KSFT_PASS;
}

/*
 * fork() gives up half way: some PTEs are read-only, some pages shared for a
 * while. Then both write, or the parent alone.
 */
static int fork_nth(const struct layout *l, const char *mode)
{
	const int step = quick() ? 23 : 1;
	unsigned int gen = 0;
	struct region r;
	long before;

	inject_start();
	NEED(get(&r, l, 32));
	for (int n = 1; n < 4000; n += step, gen++) {
		pid_t pid;
		int status = 0;

		before = number_in(PAGES "times") + number_in(SLAB "times");
		fflush(stdout);
		fail_nth(n);
		pid = fork();
		fail_nth(0);
		if (!pid) {
			status = stamp_bad(r.mem, 0, r.pages, gen) >= 0;
			stamp_range(r.mem, 0, r.pages, gen + 7);
			_exit(status || stamp_bad(r.mem, 0, r.pages, gen + 7) >= 0);
		}
		FAIL_IF(pid < 0 && errno != ENOMEM && errno != EAGAIN, "fork: %s", strerror(errno));
		for (int i = r.pages - 1; i >= 0; i--)
			stamp_page(r.mem + i * PAGE, i, gen + 1);
		FAIL_STAMP(r.mem, 0, r.pages, gen + 1, "parent, allocation %d failed", n);
		if (pid > 0)
			FAIL_IF(waitpid(pid, &status, 0) != pid || status, "child, allocation %d failed", n);
		/* Fork has done with fewer. */
		if (before == number_in(PAGES "times") + number_in(SLAB "times")) {
			FAIL_IF(n < 20, "fork makes hardly any allocation");
			break;
		}
	}
	put(&r);
	FAIL_IF(!inject_end(), "no allocation failed");
	return KSFT_PASS;
}

/* Named in part, on folios that must be cut or split for it. */
static int lazyfree_nth(const struct layout *l, const char *mode)
{
	struct region r;
	struct peer p;

	NEED(need_swap());
	inject_start();
	for (int n = 1; n <= 8; n++) {
		int k, nr;

		NEED(get(&r, l, 32));
		k = odd_page(&r);
		nr = r.fpages > 4 ? r.fpages / 4 : 1;
		/* With pages in the swap cache, shared, or neither. */
		if (n % 3 == 1)
			SYS(madvise(r.mem, PAGE, MADV_PAGEOUT));
		if (n % 3 == 2)
			NEED(peer_fork(&p));
		fail_nth(n);
		if (madvise(r.mem + k * PAGE, nr * PAGE, MADV_FREE))
			FAIL_IF(errno != ENOMEM && errno != EAGAIN, "MADV_FREE: %s", strerror(errno));
		fail_nth(0);
		FAIL_IF(around_bad(r.mem, r.pages, k, nr, 0) >= 0, "beside it");
		stamp_page(r.mem + k * PAGE, k, 1);
		SYS(madvise(r.mem, r.size, MADV_PAGEOUT));
		FAIL_STAMP(r.mem + k * PAGE, k, 1, 1, "written after it");
		FAIL_IF(around_bad(r.mem, r.pages, k, nr, 0) >= 0, "beside it, from swap");
		if (n % 3 == 2) {
			FAIL_IF(!peer_stamped(&p, r.mem, 0, r.pages, 0), "child");
			FAIL_IF(!peer_quit(&p), "child");
		}
		put(&r);
	}
	inject_end();
	return KSFT_PASS;
}

/* An answer or an error, never a wrong one. */
static int mincore_nth(const struct layout *l, const char *mode)
{
	static unsigned char vec[1024];
	struct region r;
	int failed = 0;

	inject_start();
	NEED(get(&r, l, 64));
	SYS(madvise(r.mem + 3 * PAGE, 5 * PAGE, MADV_DONTNEED));
	for (int n = 1; n <= 4; n++) {
		memset(vec, 0xff, sizeof(vec));
		fail_nth(n);
		if (mincore(r.mem, r.size, vec)) {
			fail_nth(0);
			FAIL_IF(errno != EAGAIN && errno != ENOMEM, "mincore: %s", strerror(errno));
			failed++;
			continue;
		}
		fail_nth(0);
		for (int i = 0; i < r.pages; i++)
			FAIL_IF(vec[i] != !(i >= 3 && i < 8), "page %d: %d", i, vec[i]);
	}
	put(&r);
	FAIL_IF(!inject_end() || !failed, "no allocation failed");
	return KSFT_PASS;
}

/*
 * A share of everything fails, in parent and child at once. fork() itself would
 * never get through; fork_nth() is about that.
 */
static int at_random(const struct layout *l, const char *mode)
{
	struct region r;
	unsigned int gen = 0;

	NEED(need_swap());
	inject_start();
	NEED(get(&r, l, 64));
	number_to(PAGES "probability", 20);
	number_to(SLAB "probability", 10);
	for (int i = 0; i < rounds(12) * 4; i++, gen++) {
		pid_t pid;
		int status = 0;

		pid = fork_child();
		FAIL_IF(pid < 0, "fork");
		make_it_fail(true);
		if (!pid) {
			status = stamp_bad(r.mem, 0, r.pages, gen) >= 0;
			stamp_range(r.mem, 0, r.pages / 2, gen + 9);
			_exit(status || stamp_bad(r.mem, 0, r.pages / 2, gen + 9) >= 0);
		}
		/* Either may fail; what is read must be right. */
		if (i % 4 == 1)
			madvise(r.mem, r.size, MADV_PAGEOUT);
		if (i % 4 == 2)
			madvise(r.mem, r.size, MADV_COLLAPSE);
		stamp_range(r.mem, 0, r.pages, gen + 1);
		make_it_fail(false);
		FAIL_STAMP(r.mem, 0, r.pages, gen + 1, "parent");
		FAIL_IF(waitpid(pid, &status, 0) != pid || status, "child");
	}
	put(&r);
	FAIL_IF(!inject_end(), "no allocation failed");
	return KSFT_PASS;
}

/* The last case: all of the above were worth something. */
static int enough(const struct layout *l, const char *mode)
{
	const long want = quick() ? 300 : 10000;

	ksft_print_msg("%ld allocations and %ld charges failed on purpose\n",
		       total->allocations, total->charges);
	FAIL_IF(total->allocations < want, "fewer than %ld", want);
	return KSFT_PASS;
}

static const struct test_case cases[] = {
	{ "A write in order to shared memory, of which any allocation fails",
	  copy_nth, ON_LARGE },
	{ "A write at random to shared memory, of which any allocation fails",
	  copy_random, ON_64K_UP },
	{ "No large copy can be had: each page is copied alone",
	  copy_none, ON_LARGE },
	{ "A memory cgroup at its limit refuses large copies",
	  copy_charge, ON_64K_UP },
	{ "A write to the zero page, of which any allocation fails",
	  zero_nth, ON_SMALL },
	{ "fork() of which any allocation fails, then writes",
	  fork_nth, ON_64K_UP | ONCE },
	{ "MADV_FREE of a part, of which any allocation fails",
	  lazyfree_nth, ON_LARGE | ONCE },
	{ "mincore() of which any allocation fails",
	  mincore_nth, ON_LARGE | ONCE },
	{ "One in five allocations of a tree of processes fails",
	  at_random, ON_LARGE | ON_PMD },
	{ "All in all enough allocations have failed",
	  enough, ON_PMD },
};

int main(void)
{
	if (access(PAGES "probability", F_OK) || access(SLAB "probability", F_OK) ||
	    access("/proc/self/fail-nth", F_OK)) {
		ksft_print_header();
		printf("1..0 # SKIP kernel has no fault injection (CONFIG_FAIL_PAGE_ALLOC, CONFIG_FAILSLAB)\n");
		return KSFT_PASS;
	}
	total = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (total == MAP_FAILED)
		ksft_exit_fail_perror("mmap");
	injection_defaults();
	run_cases(cases, ARRAY_SIZE(cases), "wp_copy");
}

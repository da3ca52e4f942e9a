// SPDX-License-Identifier: GPL-2.0
/*
 * Threads that write to different parts of the same large folios at once,
 * while the process forks and its children exit, or the kernel moves or merges
 * the memory. No write is lost, no child sees one made after it was born, and
 * nothing beside the writers' pages changes. With one CPU they take turns; with more they race.
 */
#include "common.h"

#include <sched.h>

#define WRITERS 4
#define KSM "/sys/kernel/mm/ksm/"

/* Every 16th page is the main thread's, the others go round the writers. */
static int owner(int page)
{
	return page % 16 == 7 ? -1 : page % WRITERS;
}

static struct {
	struct region r;
	pthread_t thread[WRITERS];
	pthread_barrier_t barrier;
	uint64_t passes[WRITERS];
	bool stop;
	bool alike;		/* the main thread's pages, for KSM to merge */
} st;

/* What is stamped into the main thread's page number @page. */
static int stamped(int page)
{
	return st.alike ? 7 : page;
}

static long cpus(void)
{
	return sysconf(_SC_NPROCESSORS_ONLN);
}

/* Two words a page, counted up one after the other. */
static volatile uint64_t *first_word(int page)
{
	return (void *)(st.r.mem + page * PAGE + 8 * (page % 64));
}

static volatile uint64_t *last_word(int page)
{
	return (void *)(st.r.mem + page * PAGE + PAGE - 8 - 8 * (page % 64));
}

static void *writer(void *arg)
{
	long me = (long)arg;
	uint64_t pass = 0;

	pthread_barrier_wait(&st.barrier);
	while (!__atomic_load_n(&st.stop, __ATOMIC_RELAXED)) {
		pass++;
		for (int i = 0; i < st.r.pages; i++) {
			if (owner(i) != me)
				continue;
			*first_word(i) = pass;
			*last_word(i) = pass;
		}
		sched_yield();
	}
	st.passes[me] = pass;
	return NULL;
}

static int start_folios(const struct layout *l, int folios)
{
	NEED(region_get(&st.r, l, folios));
	memset(st.r.mem, 0, st.r.size);
	for (int i = 0; i < st.r.pages; i++)
		if (owner(i) < 0)
			stamp_page(st.r.mem + i * PAGE, stamped(i), 0);
	st.stop = false;
	pthread_barrier_init(&st.barrier, NULL, WRITERS + 1);
	for (long i = 0; i < WRITERS; i++)
		FAIL_IF(pthread_create(&st.thread[i], NULL, writer, (void *)i), "thread");
	pthread_barrier_wait(&st.barrier);
	return KSFT_PASS;
}

static int start(const struct layout *l)
{
	return start_folios(l, FEW(l));
}

static int finish(unsigned int gen)
{
	__atomic_store_n(&st.stop, true, __ATOMIC_RELAXED);
	for (int i = 0; i < WRITERS; i++)
		pthread_join(st.thread[i], NULL);
	for (int i = 0; i < st.r.pages; i++) {
		if (owner(i) < 0) {
			FAIL_STAMP(st.r.mem + i * PAGE, stamped(i), 1, gen, "main thread's page");
			continue;
		}
		FAIL_IF(*first_word(i) != st.passes[owner(i)] ||
			*last_word(i) != st.passes[owner(i)],
			"page %d: write lost: %llu and %llu of %llu", i,
			(unsigned long long)*first_word(i),
			(unsigned long long)*last_word(i),
			(unsigned long long)st.passes[owner(i)]);
	}
	return KSFT_PASS;
}

/* In a child: what fork took is consistent, and stays as it is. */
static int snapshot(unsigned int gen)
{
	static uint64_t seen[2][2 * 512];

	for (int i = 0; i < st.r.pages; i++) {
		seen[0][i] = *first_word(i);
		seen[1][i] = *last_word(i);
		if (owner(i) < 0) {
			FAIL_STAMP(st.r.mem + i * PAGE, stamped(i), 1, gen, "main thread's page");
			continue;
		}
		FAIL_IF(seen[0][i] - seen[1][i] > 1, "page %d: %llu, then %llu", i,
			(unsigned long long)seen[0][i],
			(unsigned long long)seen[1][i]);
	}
	for (int i = 0; i < 3; i++)
		sched_yield();
	for (int i = 0; i < st.r.pages; i++)
		FAIL_IF(seen[0][i] != *first_word(i) || seen[1][i] != *last_word(i),
			"page %d: child sees the parent's writes", i);
	/* Nor does the parent see these. */
	for (int i = 0; i < st.r.pages; i += 3)
		*first_word(i) = ~0ULL;
	return KSFT_PASS;
}

static int fork_snapshot(unsigned int gen)
{
	pid_t pid = fork_child();
	int status;

	if (!pid) {
		status = snapshot(gen);
		fflush(stdout);
		_exit(status);
	}
	FAIL_IF(pid < 0, "fork");
	FAIL_IF(waitpid(pid, &status, 0) != pid, "wait");
	FAIL_IF(status, "child failed");
	return KSFT_PASS;
}

/* Fewer where each takes long: a debug kernel, or one CPU for all. */
static int rounds(void)
{
	return cpus() == 1 || (quick() && time_factor() > 1) ? 4 : 16;
}

static int writers_and_forks(const struct layout *l, const char *mode)
{
	NEED(start(l));
	for (int i = 0; i < rounds(); i++)
		NEED(fork_snapshot(0));
	return finish(0);
}

/* Children that overlap: the folio is shared with several, then with none. */
static int writers_and_many_children(const struct layout *l, const char *mode)
{
	pid_t pid[3];
	int status;

	NEED(start(l));
	for (int i = 0; i < rounds() / 2; i++) {
		for (int j = 0; j < 3; j++) {
			pid[j] = fork_child();
			if (!pid[j]) {
				status = snapshot(0);
				fflush(stdout);
				_exit(status);
			}
			FAIL_IF(pid[j] < 0, "fork");
		}
		for (int j = 0; j < 3; j++)
			FAIL_IF(waitpid(pid[j], &status, 0) != pid[j] || status,
				"child failed");
	}
	return finish(0);
}

/* The main thread's pages, amid the writers', lose and get permission. */
static int writers_and_mprotect(const struct layout *l, const char *mode)
{
	unsigned int gen = 0;

	NEED(start(l));
	for (int i = 0; i < rounds(); i++) {
		int page = 7 + 16 * (i % ((st.r.pages + 8) / 16));
		char *p = st.r.mem + page * PAGE;

		NEED(fork_and_exit());
		SYS(mprotect(p, PAGE, PROT_READ));
		for (int j = 0; j < 4; j++) {
			FAIL_IF(store_signal(p) != SIGSEGV, "read-only page was written");
			sched_yield();
		}
		FAIL_STAMP(p, page, 1, gen, "read-only page");
		SYS(mprotect(p, PAGE, PROT_READ | PROT_WRITE));
		if (i % 4 == 3) {
			gen++;
			for (int j = 7; j < st.r.pages; j += 16)
				stamp_page(st.r.mem + j * PAGE, j, gen);
			NEED(fork_snapshot(gen));
		}
	}
	return finish(gen);
}

/* They are given back, and stay zero until they are written again. */
static int writers_and_dontneed(const struct layout *l, const char *mode)
{
	NEED(start(l));
	for (int i = 0; i < rounds(); i++) {
		NEED(fork_and_exit());
		for (int j = 7; j < st.r.pages; j += 16)
			SYS(madvise(st.r.mem + j * PAGE, PAGE, MADV_DONTNEED));
		sched_yield();
		for (int j = 7; j < st.r.pages; j += 16)
			FAIL_IF(zero_bad(st.r.mem + j * PAGE, 1) >= 0, "page %d", j);
		for (int j = 7; j < st.r.pages; j += 16)
			stamp_page(st.r.mem + j * PAGE, j, 0);
		NEED(fork_snapshot(0));
	}
	return finish(0);
}

/* They move away and back: PTEs of the folio come and go beside the writers. */
static int writers_and_mremap(const struct layout *l, const char *mode)
{
	char *to = reserve(PAGE);

	FAIL_IF(!to, "mmap");
	NEED(start(l));
	for (int i = 0; i < rounds(); i++) {
		int page = 7 + 16 * (i % ((st.r.pages + 8) / 16));
		char *p = st.r.mem + page * PAGE;

		NEED(fork_and_exit());
		FAIL_IF(!move(p, PAGE, to), "mremap");
		sched_yield();
		FAIL_STAMP(to, page, 1, 0, "moved page");
		FAIL_IF(!move(to, PAGE, p), "mremap");
		FAIL_STAMP(p, page, 1, 0, "page moved back");
		if (i % 4 == 3)
			NEED(fork_snapshot(0));
	}
	return finish(0);
}

static int writers_and_pageout(const struct layout *l, const char *mode)
{
	NEED(need_swap());
	NEED(start(l));
	for (int i = 0; i < rounds() / 2; i++) {
		NEED(fork_and_exit());
		SYS(madvise(st.r.mem, st.r.size, MADV_PAGEOUT));
		NEED(fork_snapshot(0));
	}
	return finish(0);
}

static int writers_and_compaction(const struct layout *l, const char *mode)
{
	if (access("/proc/sys/vm/compact_memory", F_OK))
		return skip("kernel has no compaction");
	NEED(start(l));
	for (int i = 0; i < rounds() / 2; i++) {
		NEED(fork_and_exit());
		SYS(-!!file_write("/proc/sys/vm/compact_memory", "1"));
		NEED(fork_snapshot(0));
	}
	return finish(0);
}

/* 2 MiB become one huge page, and fall into pieces again. */
static int writers_and_collapse(const struct layout *l, const char *mode)
{
	NEED(start_folios(l, MB2 / l->folio));
	for (int i = 0; i < rounds() / 2; i++) {
		char *p = st.r.mem + 7 * PAGE;

		NEED(fork_and_exit());
		/* EAGAIN and the like: the writers were in the way. */
		if (madvise(st.r.mem, MB2, MADV_COLLAPSE) && errno == EINVAL)
			return skip("kernel has no MADV_COLLAPSE");
		NEED(fork_snapshot(0));
		SYS(mprotect(p, PAGE, PROT_READ));
		NEED(fork_and_exit());
		sched_yield();
		SYS(mprotect(p, PAGE, PROT_READ | PROT_WRITE));
	}
	return finish(0);
}

/* The same, by khugepaged, which scans as fast as it can. */
static int writers_and_khugepaged(const struct layout *l, const char *mode)
{
	NEED(start_folios(l, MB2 / l->folio));
	/* For this memory alone: what other cases map stays as it is. */
	if (l->folio != MB2)
		file_write(THP_DIR "hugepages-2048kB/enabled", "madvise");
	SYS(madvise(st.r.mem, MB2, MADV_HUGEPAGE));
	SYS(-!!file_write(THP_DIR "khugepaged/pages_to_scan", "4096"));
	SYS(-!!file_write(THP_DIR "khugepaged/alloc_sleep_millisecs", "1"));
	SYS(-!!file_write(THP_DIR "khugepaged/scan_sleep_millisecs", "1"));
	for (int i = 0; i < rounds() / 2; i++) {
		char *p = st.r.mem + 7 * PAGE;

		NEED(fork_and_exit());
		usleep(20000);
		NEED(fork_snapshot(0));
		SYS(mprotect(p, PAGE, PROT_READ));
		sched_yield();
		SYS(mprotect(p, PAGE, PROT_READ | PROT_WRITE));
	}
	file_write(THP_DIR "khugepaged/scan_sleep_millisecs", "3600000");
	if (l->folio != MB2)
		file_write(THP_DIR "hugepages-2048kB/enabled", "never");
	return finish(0);
}

/* The main thread's pages are all alike: KSM merges them, a write copies. */
static int writers_and_ksm(const struct layout *l, const char *mode)
{
	unsigned int gen = 0;

	if (file_write(KSM "pages_to_scan", "10000"))
		return skip("kernel has no KSM");
	st.alike = true;
	NEED(start(l));
	SYS(madvise(st.r.mem, st.r.size, MADV_MERGEABLE));
	SYS(-!!file_write(KSM "sleep_millisecs", "1"));
	SYS(-!!file_write(KSM "run", "1"));
	for (int i = 0; i < rounds() / 2; i++) {
		NEED(fork_and_exit());
		usleep(20000);
		NEED(fork_snapshot(gen));
		gen++;
		for (int j = 7; j < st.r.pages; j += 16)
			stamp_page(st.r.mem + j * PAGE, stamped(j), gen);
	}
	/* Merge and unmerge all of them once more, beside the writers. */
	SYS(-!!file_write(KSM "run", "2"));
	file_write(KSM "run", "0");
	return finish(gen);
}

/* All start at the same moment on memory that has just become exclusive. */
static void *one_pass(void *arg)
{
	long me = (long)arg;

	for (unsigned int gen = 1; gen <= (unsigned int)rounds(); gen++) {
		pthread_barrier_wait(&st.barrier);
		for (int i = 0; i < st.r.pages; i++)
			if (i % WRITERS == me)
				stamp_page(st.r.mem + i * PAGE, i, gen);
		pthread_barrier_wait(&st.barrier);
	}
	return NULL;
}

static int writers_at_once(const struct layout *l, const char *mode)
{
	NEED(region_get(&st.r, l, 2));
	pthread_barrier_init(&st.barrier, NULL, WRITERS + 1);
	for (long i = 0; i < WRITERS; i++)
		FAIL_IF(pthread_create(&st.thread[i], NULL, one_pass, (void *)i), "thread");
	for (int gen = 1; gen <= rounds(); gen++) {
		NEED(fork_and_exit());
		pthread_barrier_wait(&st.barrier);
		pthread_barrier_wait(&st.barrier);
		FAIL_STAMP(st.r.mem, 0, st.r.pages, gen, "write lost");
	}
	FAIL_IF(!is_folios(st.r.mem, st.r.size, st.r.folio), "folios fell apart");
	return KSFT_PASS;
}

static const struct test_case cases[] = {
	{ "Threads write to memory that has just become exclusive, all at once",
	  writers_at_once, ON_LARGE | ON_PMD },
	{ "Threads write while children come and go",
	  writers_and_forks, ON_LARGE | ON_PMD },
	{ "Threads write while three children at a time come and go",
	  writers_and_many_children, ON_LARGE },
	{ "Threads write beside pages that mprotect makes read-only",
	  writers_and_mprotect, ON_LARGE },
	{ "Threads write beside pages that MADV_DONTNEED gives back",
	  writers_and_dontneed, ON_LARGE },
	{ "Threads write beside pages that mremap moves away and back",
	  writers_and_mremap, ON_LARGE },
	{ "Threads write while MADV_PAGEOUT swaps their memory out",
	  writers_and_pageout, ON_LARGE | ON_PMD },
	{ "Threads write while memory is compacted",
	  writers_and_compaction, ON_LARGE | ON_PMD },
	{ "Threads write while MADV_COLLAPSE makes a huge page of their memory",
	  writers_and_collapse, ON_64K_UP },
	{ "Threads write while khugepaged makes a huge page of their memory",
	  writers_and_khugepaged, ON_64K_UP },
	{ "Threads write beside pages that KSM merges",
	  writers_and_ksm, ON_LARGE },
};

int main(void)
{
	run_cases(cases, ARRAY_SIZE(cases), "wp_reuse");
}

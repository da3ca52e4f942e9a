// SPDX-License-Identifier: GPL-2.0
/*
 * The other mode: threads of one process write at the same time, while the main
 * thread forks, moves, protects, frees, swaps and collapses the memory under them.
 *
 * Each thread owns one 8-byte lane of every page and knows what it last stored
 * there: a lost write or another's write shows at once.  A child of fork records
 * what it sees and must see just that until it exits, whatever the parent's
 * threads write; what the child writes no thread of the parent may ever see.
 * The upper half of the memory is also given to MADV_FREE and MADV_DONTNEED:
 * there zero is right where such a call began after the last store.
 */
#include "chk.h"

#include <sched.h>
#include <time.h>

#define TPAGES NPAGES
#define TMAX 8U
#define CHILD (0xc5ULL << 56)
#define AWAY ((unsigned char *)(ARENA + (64UL << 20)))

static struct tstate {
	uint32_t begun[TPAGES], ended[TPAGES];	/* freeing calls on a page */
	uint64_t done[TMAX][TPAGES];		/* what a thread has stored */
	uint32_t stop, failed;
	uint64_t stores;
} *T;

static unsigned int nthr;
static uint64_t base_seed;

static volatile uint64_t *lane(unsigned int page, unsigned int t)
{
	return (volatile uint64_t *)(void *)(ADDR(page) + t * 64 + (page % 8) * 8);
}

/* The main thread made it read-only, or moved it away: it will be back. */
static void on_segv(int sig)
{
	sched_yield();
}

static void complain(const char *what, unsigned int page, unsigned int t, uint64_t got,
		     uint64_t want)
{
	char line[200];
	int n;

	if (__atomic_exchange_n(&T->failed, 1, __ATOMIC_SEQ_CST))
		return;
	n = snprintf(line, sizeof(line),
		     "# threads: %s: page %u lane %u is %#lx, must be %#lx (seed %lu)\n",
		     what, page, t, (unsigned long)got, (unsigned long)want,
		     (unsigned long)base_seed);
	if (write(1, line, (size_t)n) < 0)
		_exit(2);
	T->stop = 1;
}

struct mine { uint64_t val; uint32_t gen; };

static void look(struct mine *m, unsigned int page, unsigned int t)
{
	uint64_t got = *lane(page, t);

	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (got == m->val)
		return;
	if (!got && __atomic_load_n(&T->begun[page], __ATOMIC_SEQ_CST) != m->gen) {
		m->val = 0;
		return;
	}
	complain("a thread lost its store", page, t, got, m->val);
}

static void *writer(void *arg)
{
	unsigned int t = (unsigned int)(unsigned long)arg, i;
	struct rng r = { base_seed + t * 77777 };
	struct mine *mine = calloc(TPAGES, sizeof(*mine));
	uint64_t count = 0, stores = 0;

	while (!T->stop) {
		unsigned int n = 1 + below(&r, below(&r, 4) ? 16 : 256);
		unsigned int a = below(&r, TPAGES), how = below(&r, 4);

		if (a + n > TPAGES)
			n = TPAGES - a;
		for (i = 0; i < n; i++) {
			unsigned int page = a + (how == 1 ? n - 1 - i : i);
			struct mine *m = &mine[page];
			uint32_t b, e;

			look(m, page, t);
			if (how == 3)
				continue;
			e = __atomic_load_n(&T->ended[page], __ATOMIC_SEQ_CST);
			b = __atomic_load_n(&T->begun[page], __ATOMIC_SEQ_CST);
			m->val = ((uint64_t)(t + 1) << 56) | (++count << 12) | page;
			*lane(page, t) = m->val;
			/* a call was under way: zero is right as well */
			m->gen = b == e ? b : b - 1;
			__atomic_store_n(&T->done[t][page], m->val, __ATOMIC_RELEASE);
			stores++;
		}
	}
	for (i = 0; i < TPAGES; i++)
		look(&mine[i], i, t);
	__atomic_add_fetch(&T->stores, stores, __ATOMIC_RELAXED);
	free(mine);
	return NULL;
}

static void child(struct rng *r, uint64_t (*before)[TPAGES])
{
	static uint64_t seen[TMAX][TPAGES];
	unsigned int t, i, round;

	for (t = 0; t < nthr; t++)
		for (i = 0; i < TPAGES; i++) {
			uint64_t x = seen[t][i] = *lane(i, t);
			bool freed = i >= TPAGES / 2 && T->begun[i];

			if (!x && (freed || !before[t][i]))
				continue;
			if (x >> 56 != t + 1 || (x & 0xfff) != i || (!freed && x < before[t][i]))
				complain("a child sees what was never there", i, t, x,
					 before[t][i]);
		}
	for (round = 0; round < 3; round++) {
		usleep(below(r, 2000));
		for (t = 0; t < nthr; t++)
			for (i = 0; i < TPAGES; i++) {
				uint64_t x = *lane(i, t);

				if (x == seen[t][i])
					continue;
				if (!x && i >= TPAGES / 2 && T->begun[i] && !(seen[t][i] >> 56 == 0xc5)) {
					seen[t][i] = 0;
					continue;
				}
				complain("a child sees a write that is not its own", i, t, x,
					 seen[t][i]);
			}
		i = below(r, TPAGES);
		for (t = below(r, 200); t-- && i < TPAGES; i++) {
			unsigned int l = below(r, nthr);

			seen[l][i] = CHILD | i;
			*lane(i, l) = CHILD | i;
		}
	}
	_exit(0);
}

static void freeing(unsigned int a, unsigned int n, int advice)
{
	unsigned int i;

	for (i = a; i < a + n; i++)
		__atomic_add_fetch(&T->begun[i], 1, __ATOMIC_SEQ_CST);
	madvise(ADDR(a), n * PG, advice);
	for (i = a; i < a + n; i++)
		__atomic_add_fetch(&T->ended[i], 1, __ATOMIC_SEQ_CST);
}

static void disturb(struct rng *r, unsigned int *alive)
{
	static const int quiet[] = { MADV_PAGEOUT, MADV_COLD, MADV_COLLAPSE, MADV_PAGEOUT };
	static uint64_t before[TMAX][TPAGES];
	unsigned int n = 1U << below(r, 10), a = below(r, TPAGES), t, i;
	struct op op = { .t = (uint8_t[]){ OP_THP, OP_KNOB, OP_SPLIT, OP_RECLAIM,
			 OP_KNOB, OP_COMPACT }[below(r, 40) ? below(r, 5) : 5],
			 .v = (uint32_t)rnd(r) };
	int st;

	if (a + n > TPAGES)
		n = TPAGES - a;
	op.a = (uint16_t)a;
	op.n = (uint16_t)n;
	while (*alive && waitpid(-1, &st, *alive >= 3 ? 0 : WNOHANG) > 0) {
		(*alive)--;
		if (st)
			complain("a child died", 0, 0, (uint64_t)st, 0);
	}
	switch (below(r, 12)) {
	case 0: case 1: case 2: case 3:
		for (t = 0; t < nthr; t++)
			for (i = 0; i < TPAGES; i++)
				before[t][i] = __atomic_load_n(&T->done[t][i], __ATOMIC_ACQUIRE);
		fflush(stdout);
		st = fork();
		if (!st)
			child(r, before);
		*alive += st > 0;
		break;
	case 4: case 5:
		madvise(ADDR(a), n * PG, quiet[below(r, 4)]);
		break;
	case 6:
		mprotect(ADDR(a), n * PG, PROT_READ);
		mprotect(ADDR(a), n * PG, PROT_READ | PROT_WRITE);
		break;
	case 7: {
		unsigned char *to = AWAY + (a + below(r, 2)) * PG;

		/* fails for several VMAs on an older kernel: then all stays */
		if (mremap(ADDR(a), n * PG, n * PG, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to)
			mremap(to, n * PG, n * PG, MREMAP_MAYMOVE | MREMAP_FIXED, ADDR(a));
		break;
	}
	case 8: case 9:
		if (a < TPAGES / 2)
			a += TPAGES / 2;
		if (a + n > TPAGES)
			n = TPAGES - a;
		freeing(a, n, below(r, 4) ? MADV_FREE : MADV_DONTNEED);
		break;
	default:
		env_do(&op, getpid());
		break;
	}
	if (!below(r, 8))
		usleep(below(r, 1500));
}

int threads_main(uint64_t seed, unsigned int nthreads, unsigned int seconds)
{
	struct sigaction sa = { .sa_handler = on_segv, .sa_flags = SA_NODEFER };
	pthread_t th[TMAX];
	struct rng r = { seed };
	unsigned int t, alive = 0;
	unsigned long n = 0;
	time_t end = time(NULL) + seconds, tell = time(NULL) + 10;
	int st;

	base_seed = seed;
	nthr = nthreads < TMAX ? nthreads : TMAX;
	T = mmap(NULL, sizeof(*T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	env_episode();
	env_join();
	if (mmap(ADDR(0), TPAGES * PG, PROT_READ | PROT_WRITE,
		 MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
		return 2;
	sigaction(SIGSEGV, &sa, NULL);
	signal(SIGCHLD, SIG_DFL);
	for (t = 0; t < nthr; t++)
		pthread_create(&th[t], NULL, writer, (void *)(unsigned long)t);
	while (!T->stop && time(NULL) < end) {
		disturb(&r, &alive);
		n++;
		if (time(NULL) >= tell) {
			tell += 10;
			printf("# threads: %lu disturbances\n", n);
			fflush(stdout);
		}
	}
	T->stop = 1;
	for (t = 0; t < nthr; t++)
		pthread_join(th[t], NULL);
	while (wait(&st) > 0)
		if (st)
			complain("a child died", 0, 0, (uint64_t)st, 0);
	printf("# threads: %u threads, %lu stores, %lu disturbances\n", nthr,
	       (unsigned long)T->stores, n);
	munmap(ADDR(0), TPAGES * PG);
	return T->failed ? 1 : 0;
}

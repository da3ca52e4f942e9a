/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the test programs share: a table of cases is run on every folio size
 * and in every mode of a run-time switch; memory that verifiably is in folios
 * of the size asked for; contents that say which page they belong to; a second
 * process that writes and verifies when it is told to.
 *
 * Every case runs in a process of its own. It may crash, hang or leave
 * anything behind without harm to the cases after it.
 */
#ifndef WF_TESTS_COMMON_H
#define WF_TESTS_COMMON_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <sys/wait.h>

#include "kselftest.h"

#ifndef MADV_FREE
#define MADV_FREE		8
#endif
#ifndef MADV_COLD
#define MADV_COLD		20
#endif
#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT		21
#endif
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ	22
#define MADV_POPULATE_WRITE	23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE		25
#endif
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL	102
#define MADV_GUARD_REMOVE	103
#endif

#define PAGE		4096UL
#define KB(x)		((x) >> 10)
#define MB2		(2UL << 20)
#define THP_DIR		"/sys/kernel/mm/transparent_hugepage/"

#define PM_SOFT_DIRTY	(1ULL << 55)
#define PM_UFFD_WP	(1ULL << 57)
#define PM_SWAP		(1ULL << 62)
#define PM_PRESENT	(1ULL << 63)

#define KPF_COMPOUND_HEAD	(1ULL << 15)
#define KPF_COMPOUND_TAIL	(1ULL << 16)
#define KPF_THP			(1ULL << 22)

/* --- what a case runs on ------------------------------------------------ */

/* Bits of struct test_case.on: the layouts a case makes sense with. */
#define ON_SMALL	0x01	/* 4 KiB folios: nothing to batch, a control */
#define ON_SIZES	0x02	/* 16 KiB (smaller than a block), 64 KiB, 1 MiB */
#define ON_PTE2M	0x04	/* 2 MiB, mapped by PTEs */
#define ON_PMD		0x08	/* 2 MiB, mapped by a PMD */
#define ON_REST		0x10	/* every other size the kernel knows */
#define ON_64K_UP	0x20	/* 64 KiB, 1 MiB and the 2 MiB mapped by PTEs */
#define ON_2M_BOTH	(ON_PTE2M | ON_PMD)
#define ONCE		0x100	/* in the default mode only, not in each */
#define ON_LARGE	(ON_SIZES | ON_PTE2M)
#define ON_EVERY	(ON_LARGE | ON_REST)

struct layout {
	const char *name;
	size_t folio;		/* bytes */
	bool pmd;		/* mapped by a PMD, not by PTEs */
	unsigned int on;
};

/**
 * struct region - memory in folios of one size, freshly populated
 * @mem:	the first folio's address, aligned to 2 MiB
 * @folio:	bytes of one folio
 * @fpages:	pages of one folio
 * @pages:	pages of the region
 * @size:	bytes of the region
 *
 * Page i holds stamp(i, 0). Nothing is mapped for 4 MiB on either side, so
 * that what a test maps there is alone.
 */
struct region {
	char *mem;
	size_t folio;
	int fpages;
	int pages;
	size_t size;
};

/**
 * struct test_case - one line of a table of cases
 * @desc:	a sentence: what holds when the case passes
 * @fn:		returns KSFT_PASS, KSFT_FAIL or KSFT_SKIP (with skip_reason set)
 * @on:		layouts, ON_*; and ONCE
 */
struct test_case {
	const char *desc;
	int (*fn)(const struct layout *l, const char *mode);
	unsigned int on;
};

/* Run a table and exit. @knob: file in THP_DIR or NULL. Never returns. */
void run_cases(const struct test_case *cases, int nr, const char *knob);

/* How many times as slow as the measured kernel this one is, by WF_TIME_FACTOR. */
int time_factor(void);
/* Is the short form asked for (WF_QUICK)? */
bool quick(void);

/* Why the case skips; give it to skip(), which returns KSFT_SKIP. */
__printf(1, 2) int skip(const char *fmt, ...);

/* Say what went wrong and where, then give the case up. */
#define FAIL_IF(cond, fmt, ...) do {					\
	if (cond) {							\
		ksft_print_msg("%s:%d: " fmt "\n", __func__, __LINE__,	\
			       ##__VA_ARGS__);				\
		return KSFT_FAIL;					\
	}								\
} while (0)

/* Pass on a precondition that could not be had. */
#define NEED(expr) do {							\
	int _need = (expr);						\
									\
	if (_need != KSFT_PASS)						\
		return _need;						\
} while (0)

/* A system call that has to work for the case to mean anything. */
#define SYS(expr)	FAIL_IF((long)(expr) == -1, "%s: %s", #expr,	\
				strerror(errno))

/* --- settings, put back at the end ------------------------------------- */

/* Print the header, skip all where nothing can be tested, restore at exit. */
void settings_begin(void);
int file_write(const char *path, const char *val);	/* 0 or -errno */
int file_read(const char *path, char *buf, size_t len);	/* bytes or -errno */
char *selected_word(char *s);	/* "a [b] c" -> "b"; else without its newline */
/* Remember what a file of settings holds (its [selected] word), then write. */
int setting(const char *path, const char *val);		/* 0 or -errno */
/* The same for "enabled" of folios of @folio bytes, */
void size_set(size_t folio, const char *val);
/* and of what copies may use besides them: every size up to 64 KiB. */
void sizes_set(size_t folio, const char *val);
void settings_restore(void);
bool have_knob(const char *knob);
int knob_set(const char *knob, const char *val);	/* 0 or -errno */
const char *knob_get(const char *knob);	/* the selected word; static buffer */
/* hugepages-<kb>kB/stats/<name>, or -1 */
long thp_stat(size_t folio, const char *name);

/* --- memory ------------------------------------------------------------- */

int region_get(struct region *r, const struct layout *l, int folios);
/* The same, and a child has shared all of it and has exited. */
int region_get_unshared(struct region *r, const struct layout *l, int folios);
int fork_and_exit(void);
/* @bytes of address space without access, aligned to 2 MiB, @shift in front. */
char *reserve(size_t bytes);
char *mmap_anon(void *at, size_t bytes, int prot);
char *move(char *from, size_t bytes, char *to);	/* mremap, NULL on failure */

uint64_t pm_entry(const void *addr);
uint64_t pm_pfn(const void *addr);
uint64_t kpf(uint64_t pfn);
/* Is [addr, addr+bytes) a run of whole folios of this size? */
bool is_folios(const char *addr, size_t bytes, size_t folio);
/* A field of /proc/self/smaps for the VMA that has @addr, in KiB, or -1. */
long smaps_kb(const void *addr, const char *field);
/* The VMA that has @addr. */
bool vma_range(const void *addr, char **start, char **end);

/* --- contents ----------------------------------------------------------- */

/*
 * A page is stamped with words that depend on its number, not on its address,
 * so that pages that moved, got lost or came from elsewhere are told apart,
 * and on a generation, so that stale contents are.
 */
uint64_t stamp(unsigned int page, unsigned int gen);
void stamp_page(char *addr, unsigned int page, unsigned int gen);
bool stamp_ok(const char *addr, unsigned int page, unsigned int gen);
void stamp_range(char *addr, unsigned int page, int n, unsigned int gen);
/* Index of the first page that is not as expected, or -1. Says what it found */
int stamp_bad(const char *addr, unsigned int page, int n, unsigned int gen);
/* The same for every byte of the pages. */
void fill_range(char *addr, unsigned int page, int n, unsigned int gen);
int fill_bad(const char *addr, unsigned int page, int n, unsigned int gen);
int zero_bad(const char *addr, int n);

#define FAIL_STAMP(addr, page, n, gen, fmt, ...)			\
	FAIL_IF(stamp_bad(addr, page, n, gen) >= 0, fmt, ##__VA_ARGS__)

/* --- faults ------------------------------------------------------------- */

long minflt(void);
/* Write one word of a page; how many faults did that take? 0: was writable. */
long store_faults(char *addr, uint64_t val);
/* stamp_range() and the faults it took. */
long stamp_faults(char *addr, unsigned int page, int n, unsigned int gen);
/* Signal that an access raises: 0, SIGSEGV or SIGBUS. */
int store_signal(char *addr);
int load_signal(const char *addr);

/* --- a second process --------------------------------------------------- */

/**
 * struct peer - a forked copy of this process that does as it is told
 *
 * It ends when it is told to, and when the process that made it does.
 */
struct peer {
	pid_t pid;
	int to, from;
};

int peer_fork(struct peer *p);			/* KSFT_PASS or KSFT_FAIL */
bool peer_stamped(struct peer *p, const char *addr, unsigned int page, int n,
		  unsigned int gen);
bool peer_stamp(struct peer *p, char *addr, unsigned int page, int n,
		unsigned int gen);
bool peer_filled(struct peer *p, const char *addr, unsigned int page, int n,
		 unsigned int gen);
long peer_stamp_faults(struct peer *p, char *addr, unsigned int page, int n,
		       unsigned int gen);
bool peer_zero(struct peer *p, const char *addr, int n);
bool peer_munmap(struct peer *p, char *addr, size_t bytes);
/* vmsplice @n pages into a pipe that the peer keeps, then verify them there. */
bool peer_splice(struct peer *p, char *addr, int n);
bool peer_spliced(struct peer *p, unsigned int page, int n, unsigned int gen);
/* The peer forks a child that then answers in its place; the peer exits. */
bool peer_succeed(struct peer *p);
/* The peer forks a child that does nothing and lives as long as the peer. */
bool peer_sleeper(struct peer *p);
bool peer_quit(struct peer *p);

/* fork() whose child dies with its parent. */
pid_t fork_child(void);

/* --- for write faults that reuse large folios ---------------------------- */

/*
 * Is this a number of faults that rewriting whole exclusive folios from front
 * to back may take? One a page on a kernel, or in a mode, that does not batch;
 * one a folio, one a block of 16 pages, or a few where it does.
 */
bool reuse_faults_fit(const char *mode, int fpages, int folios, long faults);
/* Where in a folio to put something: by its middle, off a block's border. */
int odd_page(const struct region *r);
/* Write all pages of [0, pages) but [k, k+n): first those beside the gap. */
void stamp_around(char *mem, int pages, int k, int n, unsigned int gen);
int around_bad(char *mem, int pages, int k, int n, unsigned int gen);
/* How many folios: enough to have a neighbour, few where each is 512 pages. */
#define FEW(l) ((l)->folio == MB2 ? 1 : 2)

/* --- zram swap ---------------------------------------------------------- */

/* Make sure that there is swap; KSFT_PASS or KSFT_SKIP. */
int need_swap(void);

/* --- a memory cgroup ----------------------------------------------------- */

/* Move this process into the memory cgroup of the tests; KSFT_PASS or KSFT_SKIP. */
int cgroup_enter(void);
int cgroup_limit(long bytes);		/* memory.max; 0 or -errno */
void cgroup_reclaim(long bytes);	/* as much of it as can be had */
long cgroup_current(void);		/* memory.current */
long cgroup_kills(void);		/* oom kills since cgroup_enter() */

#endif

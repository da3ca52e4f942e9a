/* SPDX-License-Identifier: GPL-2.0 */
/*
 * folio-measure: what large folios cost on the paths that walk or fault them.
 *
 * One experiment per file; what they share is declared here:
 *   core.c     settings that are changed and put back, clock, children
 *   mem.c      memory in folios of a wanted size, and the proof that it is
 *   pattern.c  which pages are written, in which order, and the timed loops
 *   report.c   rows, skips and failures; the table and the JSON file
 */
#ifndef MEASURE_H
#define MEASURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#define KB		1024UL
#define MB		(1024UL * KB)
#define GB		(1024UL * MB)
#define ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))
#define THP_DIR		"/sys/kernel/mm/transparent_hugepage"

/* What the command line asked for. */
struct options {
	bool quick;		/* less memory, fewest sizes */
	bool modes;		/* once more for every mode of the knobs */
	bool allow_swap;	/* may page its own memory out to swap in use */
	size_t memory;		/* bytes of the largest write experiment */
	unsigned int repeats;	/* how often each figure is measured */
};

extern struct options opt;
extern size_t pgsize;		/* bytes of a base page */
extern size_t pmdsize;		/* bytes that one PMD maps */

/* ---- core.c: settings, clock, children -------------------------------- */

void fixed_addresses(char **argv);
void core_init(void);
void core_exit(void);

bool setting_get(const char *path, char *val, size_t len);
bool setting_set(const char *path, const char *val);
bool setting_writable(const char *path);
bool setting_write(const char *path, const char *val);
void undo_write(const char *path, const char *val);
void khugepaged_pause(void);
void undo_swapoff(const char *path);
bool is_root(void);
bool in_lab(void);

/* One CLOCK_MONOTONIC reading: nanoseconds, or instructions under icount. */
static inline uint64_t now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

extern uint64_t clock_cost;	/* what a pair of now() calls itself costs */
extern uint64_t clock_step;	/* the least by which the clock was seen to advance */
extern uint64_t copy_cost;	/* what the copy of one page itself costs */
uint64_t elapsed(uint64_t from, uint64_t to);
uint64_t minor_faults(void);

/* A child of the measuring process; see child_start(). */
struct child {
	pid_t pid;
	int go;			/* writing to it, or closing it, releases the child */
	int ready;		/* the child writes one byte when it is ready */
	uint64_t fork_time;	/* of fork() alone, in the parent */
};

typedef bool (*child_fn)(void *arg);
bool child_start(struct child *c, child_fn prepare, void *arg);
bool child_stop(struct child *c);
bool fork_and_wait(void);

/* ---- report.c ---------------------------------------------------------- */

/* The case at work: every row, skip and failure is filed under it. */
struct where {
	const char *experiment;
	const char *name;
	unsigned int kb;	/* folio size, KiB */
	size_t bytes;		/* memory the case works on */
};

extern const char *current_mode;	/* NULL: the kernel's default */

/* One figure measured several times: the smallest counts. */
struct series {
	double min;
	double max;
	unsigned int n;
};

void series_add(struct series *s, double v);
void row(const struct where *w, const char *metric, double value);
void row_series(const struct where *w, const char *metric, const struct series *s);
void row_scaled(const struct where *w, const char *metric, const struct series *s,
		double divisor);
size_t rows_mark(void);
void rows_copy(size_t from, size_t to, const char *mode);
void skip(const struct where *w, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
void fail(const struct where *w, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
void progress(const struct where *w);
void progress_done(void);
unsigned int failures(void);
void report_table(void);
int report_json(const char *path);

/* ---- mem.c ------------------------------------------------------------- */

enum mapping {
	MAP_AS_FAULTED,		/* as the page fault left it */
	MAP_BY_PTES,		/* no PMD maps it whole, but folios are whole */
};

/* Anonymous memory in folios of one size, aligned to a PMD's reach. */
struct region {
	char *base;
	size_t len;		/* bytes, a multiple of pmdsize */
	size_t pages;
	unsigned int kb;
	char *map;		/* what was mmap()ed around it */
	size_t maplen;
};

/* What the page tables say of one range; see snapshot_take(). */
struct snapshot {
	uint64_t *pme;		/* pagemap entries, one per page */
	size_t pages;
	bool pfns;		/* PFNs were readable */
};

bool size_obtainable(const struct where *w);
bool sizes_set(unsigned int kb);
void sizes_add(unsigned int kb);
bool region_reserve(struct region *r, const struct where *w);
bool region_alloc(struct region *r, const struct where *w, enum mapping how);
void region_free(struct region *r);
bool region_check(const struct region *r, const struct where *w, enum mapping how);
size_t memory_for(size_t wanted, unsigned int copies);
void *scratch(size_t len);

bool snapshot_of(struct snapshot *s, int pagemap, const void *base, size_t len);
bool snapshot_take(struct snapshot *s, const void *base, size_t len);
void snapshot_free(struct snapshot *s);
size_t snapshot_folio_kb(const struct snapshot *s, size_t page);
double large_share(const struct snapshot *s, const uint8_t *written);
size_t pmd_mapped_bytes(const void *base, size_t len);

#define PM_PRESENT	(1ULL << 63)
#define PM_SWAPPED	(1ULL << 62)
#define PM_EXCLUSIVE	(1ULL << 56)
#define PM_PFN(e)	((e) & ((1ULL << 55) - 1))

/* ---- pattern.c --------------------------------------------------------- */

/* Which pages are written and in which order. */
struct pattern {
	const char *name;
	bool fill;		/* every byte of every page (memset) */
	uint32_t *page;		/* page numbers */
	size_t n;
	size_t pages;		/* of the region */
	uint8_t *written;	/* one byte per page of the region */
};

bool pattern_make(struct pattern *p, const char *name, size_t pages);
void pattern_free(struct pattern *p);
uint64_t pattern_write(const struct pattern *p, char *base);
void pattern_time(const struct pattern *p, char *base, uint32_t *samples);

/* Latencies of single stores, each the least of several passes. */
struct latency {
	uint32_t *sample;
	size_t n;
};

void latency_init(struct latency *l, size_t n);
void latency_rows(struct latency *l, const struct where *w);
void latency_free(struct latency *l);

/* ---- the experiments --------------------------------------------------- */

void run_reuse(void);
void run_cow(void);
void run_collapse(void);
void run_zero(void);
void run_mincore(void);
void run_lazyfree(void);
void run_guard(void);

#endif

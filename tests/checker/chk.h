/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Random-operation checker for anonymous memory.
 *
 * One orchestrator holds a model of what every byte of up to NPROC processes
 * must be, and commands the processes one operation at a time, so that the
 * sequence is the seed's and nothing else's.  Model and page contents lie in
 * memory shared by all of them: a process compares its own pages in place.
 *
 *	ops.c		which operations exist, how they are drawn and written down
 *	model.c		what each operation does to the bytes
 *	exec.c		the orchestrator: model first, then the process, then compare
 *	worker.c	the process: does one operation, checks its own memory
 *	uring.c, uffd.c	the two kernel interfaces that need some lines
 *	sysenv.c	swap, memcg, THP knobs, compaction: the system around it
 *	shrink.c	fewer operations that still fail
 *	repro.c		a failing sequence as a C program
 *	threads.c	the other mode: threads of one process, no orchestrator
 */
#ifndef CHK_H
#define CHK_H

#include <stddef.h>
#include "../common.h"

#define PG 4096UL
#define NPROC 8
#define NPAGES 1024U		/* 4 MiB: two PMDs a process */
#define ARENA 0x100000000000UL
#define NCONTENT 32768U
#define NSHARED 8192U
#define NPIN 16
#define PINPAGES 64
#define PINVERS 12
#define NOALT 0xffffffffU
#define ADDR(p) ((unsigned char *)(ARENA + (unsigned long)(p) * PG))

/* ------------------------------------------------------------- operations */

enum op_type {
	OP_MAP, OP_MAPSH, OP_WRITE, OP_READ, OP_KWRITE, OP_FORK, OP_EXIT,
	OP_RESET, OP_MUNMAP, OP_MREMAP, OP_MPROTECT, OP_MADVISE, OP_MLOCK,
	OP_MUNLOCK, OP_UFFD_REG, OP_UFFD_WP, OP_UFFD_UNREG, OP_SDCLEAR,
	OP_SCAN, OP_PVREAD, OP_PVWRITE, OP_MEMWRITE, OP_SPLICE, OP_RING,
	OP_PINREAD, OP_PINWRITE, OP_UNPIN, OP_SWAPCYCLE, OP_RECLAIM,
	OP_MEMLIMIT, OP_COMPACT, OP_THP, OP_SHMEM_THP, OP_KNOB, OP_KSM,
	OP_SPLIT, OP_PAUSE, OP_CHECK, OP_CHECKALL, OP_NR
};

struct op {
	uint8_t t, p, q, pad;	/* what, who, to whom */
	uint16_t a, n, b, pad2;	/* page, number of pages, other page */
	uint32_t v;		/* value, advice, style, seed of bytes */
};

struct op_info {
	const char *name;
	unsigned int weight;
	const char *what;
};

extern const struct op_info op_info[OP_NR];

struct rng { uint64_t s; };

static inline uint64_t rnd(struct rng *r)
{
	uint64_t z = (r->s += 0x9e3779b97f4a7c15ULL);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return z ^ (z >> 31);
}

static inline uint32_t below(struct rng *r, uint32_t n)
{
	return n ? (uint32_t)(rnd(r) % n) : 0;
}

/* How a write op touches page i of its range: pure, so model and process agree. */
struct geom { uint32_t off, len; bool skip; };
struct geom write_geom(const struct op *op, unsigned int page);
/* i-th page that a write op visits, 0 <= i < n: order is part of the op. */
unsigned int write_order(const struct op *op, unsigned int i);
void op_print(char *buf, size_t len, const struct op *op);
int op_parse(const char *line, struct op *op);
void op_gen(struct rng *r, struct op *op);
void op_gen_start(uint64_t seed);
void op_begin(struct op *op, unsigned int step);

extern const int madv_list[];
extern const char *const madv_name[];
#define MADV_NR 16

/* ------------------------------------------------------------------ model */

enum {
	F_MAPPED = 1, F_R = 2, F_W = 4, F_SHARED = 8, F_LOCKED = 16,
	F_WIPE = 32, F_DONTFORK = 64, F_UFFD = 128,
	F_WPEXP = 256,		/* uffd-wp bit is set and must stay */
	F_UWRITTEN = 512,	/* written since the last uffd-wp */
	F_SDW = 1024,		/* written since soft-dirty was cleared */
	F_MERGE = 2048,
	F_LAZY = 16384,		/* lazily freed and not written since, in this or an earlier process */
	F_UNSHARED = 8192,	/* read through a pin, and not written since */
	F_SINCE = 4096,		/* written since its process was in a fork */
	F_VMA = F_MAPPED | F_R | F_W | F_SHARED | F_LOCKED | F_WIPE |
		F_DONTFORK | F_UFFD,
};

struct mpage {
	uint32_t c;		/* content */
	uint32_t alt;		/* or this one (MADV_FREE), or NOALT */
	uint32_t sh;		/* shared page, 0: private */
	uint16_t fl;
	uint8_t pin, pidx;	/* pin number + 1 and page of it */
};

struct mpin {
	uint8_t used, ring, proc, n, overflow;
	uint32_t cur[PINPAGES];			/* ring: what it must read */
	uint32_t ver[8][PINVERS];		/* splice: what it may read */
	uint8_t nver[8];
};

struct cmd {
	struct op op;
	uint32_t arg, arg2;
	uint8_t full;
	uint32_t failed_page;
	uint32_t failed_off;
	int want;
	int64_t ret;
	int err;
	bool fail;
	volatile bool done;	/* the last thing that a process sets */
	char msg[240];
	uint64_t h_perm, h_mincore, resident;
};

struct mproc {
	bool alive;
	pid_t pid;
	int uffd_mode;		/* 0 none, 1 sync, 2 async */
	unsigned long sd_moves;	/* env_moves() before soft-dirty bits were cleared */
	struct mpage pg[NPAGES];
	struct cmd cmd;
};

struct shm {
	struct mproc pr[NPROC];
	struct { uint32_t ref, c; } sp[NSHARED];
	uint32_t spfree[NSHARED], nspfree;
	struct mpin pin[NPIN];
	uint32_t ref[NCONTENT];
	uint32_t cfree[NCONTENT], ncfree;
	unsigned long unseen;	/* pages that pagemap said were none and were not */
	bool has_softdirty, has_scan, has_uffd, has_uffd_async, has_uring;
	bool has_force;		/* /proc/self/mem goes past permissions */
	bool frugal;		/* read nothing that nobody wrote */
	bool lru_gen;		/* begins with the multi-gen LRU */
};

extern struct shm *S;		/* shared by all */
extern unsigned char *pool;	/* page contents, shared by all */
extern int pool_fd;

/* Are two pages the same? Emulated, libc's vector code is several times slower. */
static inline bool same(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;
	unsigned int i, j;

	for (i = 0; i < PG / 8; i += 8) {
		uint64_t d = 0;

		for (j = i; j < i + 8; j++)
			d |= x[j] ^ y[j];
		if (d)
			return false;
	}
	return true;
}

#define ZEROC 0U
static inline unsigned char *c_ptr(uint32_t c) { return pool + (size_t)c * PG; }
static inline uint32_t pg_content(const struct mpage *m)
{
	return m->sh ? S->sp[m->sh].c : m->c;
}

/* A forced write reaches private memory whatever its permissions. */
static inline bool can_force(const struct mpage *m)
{
	return (m->fl & F_W) || (S->has_force && (m->fl & F_MAPPED) && !m->sh);
}

void model_init(void);
void m_clear(struct mpage *m);
void m_map(int p, unsigned int a, unsigned int n, int prot, bool shared);
void m_zap(int p, unsigned int a, unsigned int n);
void m_write(int p, unsigned int page, uint32_t off, uint32_t len, uint64_t seed,
	     int style);
void m_fork(int p, int q);
void m_exit(int p);
void m_move(int p, unsigned int a, unsigned int n, unsigned int b, bool keep);
void m_lazy(int p, unsigned int a, unsigned int n);
void m_resolve(struct mpage *m, bool is_alt);
unsigned int m_clip(int p, unsigned int a, unsigned int n, unsigned int mask);
void m_pin_set(int k, int p, unsigned int a, unsigned int n, bool ring);
void m_pin_drop(int k);
void bytes_make(unsigned char *dst, uint32_t off, uint32_t len, uint64_t seed, int style);
uint64_t m_hash(int p);
unsigned int m_written(void);
bool m_shared(const struct mpage *m);

/* --------------------------------------------------------------- executor */

struct failure {
	bool failed;
	unsigned int step;
	struct op op;
	int proc;
	uint32_t page, off;
	int want;		/* the byte that should be there, -1: no such */
	char msg[256];
};


/* An episode: a fresh process tree.  ops[] given: replay; else drawn from seed. */
int episode(struct op *ops, unsigned int n, uint64_t seed, bool generate,
	    struct failure *f);
extern struct op *eff;		/* what each step came to; n = 0xffff: nothing */
#define EFF_SKIP 0xffff
static inline uint64_t page_seed(uint32_t v, unsigned int page)
{
	return v * 2654435761ULL + ((uint64_t)page << 32);
}
extern unsigned long stat_ops[OP_NR], stat_skip[OP_NR], stat_ns[OP_NR], stat_oom;
extern unsigned int opt_procs, opt_check;
extern int opt_digest_fd;
extern bool opt_verbose, opt_swapoff;

/* ----------------------------------------------------------------- others */

void worker_main(int slot) __attribute__((noreturn));
extern int cmd_fd[NPROC], done_fd, scratch_fd;

int ring_pin(int k, unsigned int a, unsigned int n);
int ring_io(int k, bool to_memory, unsigned int n);
void ring_drop(int k);
bool ring_probe(void);

int uffd_open_fd(bool async);
int uffd_reg(int fd, unsigned int a, unsigned int n, bool on);
int uffd_wp(int fd, unsigned int a, unsigned int n, bool on);
bool uffd_next(int fd, unsigned int *page);

void env_setup(void);
void env_episode(void);
void env_restore(void);
void env_join(void);
void env_kill(void);
void env_forget(pid_t pid);
int env_do(const struct op *op, pid_t pid);
long env_oom_kills(void);
unsigned long env_moves(void);
long env_memory(void);
bool env_memory_back(char *msg, size_t len);
void env_describe(const struct op *op, char *buf, size_t len);

bool shrink(struct op *ops, unsigned int *len, struct failure *f);
void repro_print(const struct op *ops, unsigned int n, const struct failure *f);
int threads_main(uint64_t seed, unsigned int nthreads, unsigned int seconds);

#endif

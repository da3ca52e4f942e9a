// SPDX-License-Identifier: GPL-2.0
/*
 * The operations: their names and weights, how one is drawn, written, read.
 * An op holds concrete numbers (process, page, length), never "a random one of
 * those that exist": taking ops out of a sequence then leaves the rest as it was.
 */
#include "chk.h"

const struct op_info op_info[OP_NR] = {
	[OP_MAP]	= { "map", 40, "mmap private anonymous memory" },
	[OP_MAPSH]	= { "mapsh", 6, "mmap shared anonymous memory" },
	[OP_WRITE]	= { "write", 260, "store from the program" },
	[OP_READ]	= { "read", 60, "load and compare" },
	[OP_KWRITE]	= { "kwrite", 30, "pread() into the memory" },
	[OP_FORK]	= { "fork", 90, "fork p to q" },
	[OP_EXIT]	= { "exit", 70, "exit" },
	[OP_RESET]	= { "reset", 2, "drop the whole address space, as exec does" },
	[OP_MUNMAP]	= { "munmap", 20, "munmap" },
	[OP_MREMAP]	= { "mremap", 30, "move pages (v=1: MREMAP_DONTUNMAP)" },
	[OP_MPROTECT]	= { "mprotect", 40, "v: 0 none, 1 read, 3 read and write" },
	[OP_MADVISE]	= { "madvise", 130, "v: index of the advice" },
	[OP_MLOCK]	= { "mlock", 6, "mlock" },
	[OP_MUNLOCK]	= { "munlock", 8, "munlock" },
	[OP_UFFD_REG]	= { "uffd-reg", 10, "register for write protection" },
	[OP_UFFD_WP]	= { "uffd-wp", 20, "write-protect (v=1) or not (v=0)" },
	[OP_UFFD_UNREG]	= { "uffd-unreg", 4, "unregister" },
	[OP_SDCLEAR]	= { "sd-clear", 12, "clear soft-dirty" },
	[OP_SCAN]	= { "scan", 14, "PAGEMAP_SCAN (v=1: and write-protect)" },
	[OP_PVREAD]	= { "pv-read", 12, "process_vm_readv of q's memory" },
	[OP_PVWRITE]	= { "pv-write", 16, "process_vm_writev into q's memory" },
	[OP_MEMWRITE]	= { "mem-write", 20, "forced write through /proc/self/mem" },
	[OP_SPLICE]	= { "splice", 12, "pin by vmsplice" },
	[OP_RING]	= { "ring", 16, "pin as an io_uring fixed buffer" },
	[OP_PINREAD]	= { "pin-read", 24, "read through the pin and compare" },
	[OP_PINWRITE]	= { "pin-write", 10, "write through the pin" },
	[OP_UNPIN]	= { "unpin", 12, "drop the pin" },
	[OP_SWAPCYCLE]	= { "swapcycle", 1, "swapoff and swapon" },
	[OP_RECLAIM]	= { "reclaim", 3, "memory.reclaim" },
	[OP_MEMLIMIT]	= { "memlimit", 5, "memory.max below usage, or none" },
	[OP_COMPACT]	= { "compact", 1, "compact memory" },
	[OP_THP]	= { "thp", 24, "enabled of one THP size" },
	[OP_SHMEM_THP]	= { "shmem-thp", 4, "shmem_enabled of one THP size" },
	[OP_KNOB]	= { "knob", 16, "a knob of the paths under test" },
	[OP_KSM]	= { "ksm", 3, "KSM on or off" },
	[OP_SPLIT]	= { "split", 20, "split the folios of a range" },
	[OP_PAUSE]	= { "pause", 3, "let the kernel's own threads run" },
	[OP_CHECK]	= { "check", 60, "compare a part of a process" },
	[OP_CHECKALL]	= { "checkall", 0, "compare everything" },
};

const int madv_list[MADV_NR] = {
	MADV_DONTNEED, MADV_FREE, MADV_FREE, MADV_PAGEOUT, MADV_COLD,
	MADV_COLLAPSE, MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_MERGEABLE,
	MADV_UNMERGEABLE, MADV_WIPEONFORK, MADV_KEEPONFORK, MADV_DONTFORK,
	MADV_DOFORK, MADV_POPULATE_READ, MADV_POPULATE_WRITE,
};
const char *const madv_name[MADV_NR] = {
	"MADV_DONTNEED", "MADV_FREE", "MADV_FREE", "MADV_PAGEOUT", "MADV_COLD",
	"MADV_COLLAPSE", "MADV_HUGEPAGE", "MADV_NOHUGEPAGE", "MADV_MERGEABLE",
	"MADV_UNMERGEABLE", "MADV_WIPEONFORK", "MADV_KEEPONFORK", "MADV_DONTFORK",
	"MADV_DOFORK", "MADV_POPULATE_READ", "MADV_POPULATE_WRITE",
};
static const unsigned char madv_weight[MADV_NR] = {
	8, 14, 8, 14, 4, 12, 8, 2, 3, 2, 2, 3, 2, 6, 5, 6,
};

struct geom write_geom(const struct op *op, unsigned int page)
{
	static const unsigned int every[8] = { 1, 1, 1, 1, 2, 16, 64, 1 };
	struct rng r = { op->v * 0x10001ULL + page };
	unsigned int stride = (op->v >> 8) & 7;
	struct geom g = { 0, PG, false };

	rnd(&r);
	g.skip = (page % every[stride]) != op->v % every[stride];
	if (stride == 7)
		g.skip = below(&r, 10) != 0;
	switch (op->v % 8) {
	case 1: case 6:
		g.len = 1;
		g.off = below(&r, PG);
		break;
	case 2: case 7:
		g.len = 8;
		g.off = below(&r, PG / 8) * 8;
		break;
	case 3:
		g.off = below(&r, PG - 300);
		g.len = 1 + below(&r, 300);
		break;
	}
	return g;
}

unsigned int write_order(const struct op *op, unsigned int i)
{
	switch ((op->v >> 4) & 3) {
	case 1:
		return op->n - 1 - i;
	case 2:
		return (unsigned int)((unsigned long)i * 7919 % op->n);
	}
	return i;
}

/* Most episodes keep to small ranges: a fault costs what many comparisons do. */
static const unsigned short few[] = {
	1, 1, 1, 1, 2, 2, 3, 4, 4, 5, 7, 8, 8, 9, 15, 16, 16, 17, 32, 33, 64,
}, many[] = {
	1, 1, 1, 2, 2, 3, 4, 4, 5, 8, 8, 15, 16, 16, 16, 17, 31, 32, 32, 33, 64,
	64, 100, 128, 256, 256, 400, 512, 512, 513, 700,
};
static bool wide;	/* this one does not */

/*
 * Ranges gather round a few hot places, so that operations meet on the same
 * folios; half of them are aligned to their size as a folio would be.
 */
static void gen_range(struct rng *r, struct op *op)
{
	static const unsigned short hot[] = { 0, 64, 256, 480, 600, 768 };
	unsigned int n = wide ? many[below(r, ARRAY_SIZE(many))] : few[below(r, ARRAY_SIZE(few))];
	unsigned int a;

	if (below(r, 3))
		a = hot[below(r, 6)] + below(r, 40);
	else
		a = below(r, NPAGES);
	if (below(r, 2) && n > 1) {
		unsigned int al = 1;

		while (al * 2 <= n)
			al *= 2;
		a -= a % al;
	}
	if (a >= NPAGES)
		a = NPAGES - 1;
	if (a + n > NPAGES)
		n = NPAGES - a;
	op->a = (uint16_t)a;
	op->n = (uint16_t)n;
}

static int gen_alive(struct rng *r)
{
	int live[NPROC], n = 0, i;

	for (i = 0; i < (int)opt_procs; i++)
		if (S->pr[i].alive)
			live[n++] = i;
	return n ? live[below(r, (uint32_t)n)] : 0;
}

/* A range that userfaultfd knows, where there is one. */
static void gen_registered(struct rng *r, struct op *op)
{
	unsigned int p0 = below(r, opt_procs), a0 = below(r, NPAGES), i, j;

	for (i = 0; i < opt_procs; i++) {
		const struct mproc *pr = &S->pr[(p0 + i) % opt_procs];

		if (!pr->alive || !pr->uffd_mode)
			continue;
		for (j = 0; j < NPAGES; j += 7)
			if (pr->pg[(a0 + j) % NPAGES].fl & F_UFFD)
				break;
		if (j >= NPAGES)
			continue;
		op->p = (uint8_t)((p0 + i) % opt_procs);
		op->a = (uint16_t)((a0 + j) % NPAGES);
		if (op->a + op->n > (int)NPAGES)
			op->n = (uint16_t)(NPAGES - op->a);
		return;
	}
}

static int count_alive(void)
{
	int i, n = 0;

	for (i = 0; i < (int)opt_procs; i++)
		n += S->pr[i].alive;
	return n;
}

static unsigned int pick_type(struct rng *r)
{
	static unsigned int total;
	unsigned int i, w;

	if (!total)
		for (i = 0; i < OP_NR; i++)
			total += op_info[i].weight;
	w = below(r, total);
	for (i = 0; w >= op_info[i].weight; i++)
		w -= op_info[i].weight;
	return i;
}

/*
 * Recipes.  Drawn one by one, operations rarely come in the order that makes a
 * large folio interesting, so a part of them is drawn as a row, on one range and
 * with other operations in between.  A letter is a step:
 *
 *	m map, w write, h read all; x write a part, y the child writes a part
 *	F fork, E the child exits; D and d: MADV_DONTFORK of a part, and undone
 *	r, R read-only and back; s, S the same for a part; g forced write
 *	l MADV_FREE a part, L all; o MADV_PAGEOUT; G reclaim what the memcg has; z MADV_DONTNEED, n munmap a part
 *	v mremap a part a little off; X split; c clear soft-dirty
 *	u register with userfaultfd, U write-protect a part
 *	p pin a part, k splice a part, P read through the pin, i write through it
 *	e, f protection of a part off, unregister
 *	j write elsewhere, W mremap from there into the part
 *	A, B write what is before, what is behind the part
 *	N, M the child unmaps what is before, what is behind the part
 *	C, K compare in the parent, in the child
 */
static const char *const recipes[] = {
	"mwDFdrRxKC", "mwDFdsSxyKC", "mwFExC", "mwFxyCK", "mwFEwC", "mwFxxxCK",
	"mwpFxyPiPKC", "mwkFyEPxC", "mwkFxKP", "mwFoxCK", "mwFoyExC", "mwlxoC",
	"mwLwoC", "mwFvExC", "mwcFExC", "mwuUFExC", "mwuUxC", "mwFsEgxC", "mwFsgxKC",
	"mwFnExC", "mwFzExC", "mwFzxKC", "mhxC", "mhFxyKC", "mhoxC", "mhzxC", "mwFXExC",
	"mwoxC", "mwFvxyKC", "mwlFxyoKC", "mwDFdpxyPC", "mwrFERxC", "mwFEsSxC",
	"mwpFyxPC", "mwFpxPyKiPC", "mwcFxyC", "mwlxlxoC", "mwFlExoC", "mwDFdkxyPC",
	"mwzFxyKC", "mwozxC", "mwFoEwC", "mwOFxyKC", "mwFyyxxKC", "mwvFExC",
	"mwloC", "mwlLoC", "mwlGC", "mwlxGC", "mwFxEFLGKC", "mwFxEFyLGKC", "mwFxEFLyGKC", "mhwxC", "mhxwKC",
	/* exclusive pages amid shared ones of their folio, read-only and pinned */
	"mwDFdprRwPC", "mwDFdprRxPKC", "mwDFdprRwPiPC",
	/* a pin of what another page's fault made writable; a page in a pipe only */
	"mwFEwpFxPC", "mwFExpFwPKC", "mwFEwkFnyP", "mwkFnyPK", "mwkFnywPK",
	/* exclusive and write-protected pages beside shared ones */
	"mwcABDFdxwKC", "mwcABDFdxABKC", "mwcABDFdxxKC", "mwcABDFdkxwPKC",
	/* a page of another folio in between, the rest is the parent's again */
	"mwjWFNMwxKC", "mwjWFNMxwKC", "mwjWFNMxxKC", "mwFNMxwKC", "mwFNxwKC", "mwFMxwKC",
};

static struct recipe {
	const char *at;
	struct op all, part;
	uint8_t p, q;
} row;

static void row_begin(struct rng *r)
{
	static const unsigned short len[] = { 16, 16, 32, 32, 64, 64, 256, 512 };
	unsigned int n = len[below(r, wide ? 8 : 6)], i, k;

	row.p = (uint8_t)gen_alive(r);
	for (i = 0; i < opt_procs && S->pr[i].alive; i++)
		;
	if (i == opt_procs) {	/* no room for a child */
		row.at = NULL;
		return;
	}
	row.q = (uint8_t)i;
	row.at = recipes[below(r, sizeof(recipes) / sizeof(recipes[0]))];
	memset(&row.all, 0, sizeof(row.all));
	row.all.a = (uint16_t)(below(r, NPAGES / n) * n);
	row.all.n = (uint16_t)n;
	row.part = row.all;
	k = 1 + below(r, below(r, 2) ? n / 2 : 4);
	row.part.n = (uint16_t)k;
	row.part.a = (uint16_t)(row.all.a + below(r, n - k + 1));
	if (!below(r, 3))
		row.at += 2;	/* on what is there already */
}

static void row_next(struct rng *r, struct op *op)
{
	char c = *row.at++;
	unsigned int i;

	*op = strchr("mwhrRLoucfvCK", c) && c != 'v' ? row.all : row.part;
	op->p = row.p;
	op->q = row.q;
	op->v = (uint32_t)rnd(r);
	switch (c) {
	case 'm': op->t = OP_MAP; op->v = 3; break;
	case 'w': op->t = OP_WRITE; op->v &= 0xfff0f0f0; break;
	case 'h': op->t = OP_READ; break;
	case 'x': case 'y':
		op->t = OP_WRITE;
		if (below(r, 2)) {	/* around, over the part's edges */
			op->a = row.all.a;
			op->n = row.all.n;
		}
		op->p = c == 'x' ? row.p : row.q;
		break;
	case 'F': op->t = OP_FORK; op->a = op->n = 0; break;
	case 'E': op->t = OP_EXIT; op->p = row.q; break;
	case 'D': op->t = OP_MADVISE; op->v = 12; break;
	case 'd': op->t = OP_MADVISE; op->v = 13; break;
	case 'r': case 's': op->t = OP_MPROTECT; op->v = 1; break;
	case 'R': case 'S': op->t = OP_MPROTECT; op->v = 3; break;
	case 'g': op->t = OP_MEMWRITE; break;
	case 'l': case 'L': op->t = OP_MADVISE; op->v = 1; break;
	case 'o': case 'O': op->t = OP_MADVISE; op->v = 3; break;
	case 'G': op->t = OP_RECLAIM; op->v = 16; break;
	case 'z': op->t = OP_MADVISE; op->v = 0; break;
	case 'n': op->t = OP_MUNMAP; break;
	case 'v':
		op->t = OP_MREMAP;
		op->b = (uint16_t)(op->a + op->n + below(r, 9));
		op->v = 0;
		break;
	case 'X': op->t = OP_SPLIT; break;
	case 'c': op->t = OP_SDCLEAR; break;
	case 'u': op->t = OP_UFFD_REG; op->v &= 1; break;
	case 'U': op->t = OP_UFFD_WP; op->v = 1; break;
	case 'e': op->t = OP_UFFD_WP; op->v = 0; break;
	case 'f': op->t = OP_UFFD_UNREG; break;
	case 'j': case 'W':
		op->t = c == 'j' ? OP_WRITE : OP_MREMAP;
		op->b = op->a;
		op->a = (uint16_t)((op->a + 400) % NPAGES);
		if (op->a + op->n > (int)NPAGES)
			op->a = 0;
		op->v = c == 'j' ? op->v & 0xfff0f0f0 : 0;
		break;
	case 'A': case 'B': case 'N': case 'M':
		op->t = OP_WRITE;
		op->v &= 0xfff0f0f0;
		if (c == 'N' || c == 'M') {
			op->t = OP_MUNMAP;
			op->p = row.q;
		}
		i = op->a + op->n;
		if (c == 'N' || c == 'A') {
			op->n = (uint16_t)(op->a - row.all.a);
			op->a = row.all.a;
		} else {
			op->n = (uint16_t)(row.all.a + row.all.n - i);
			op->a = (uint16_t)(i < NPAGES ? i : 0);
		}
		if (!op->n)
			op->t = OP_READ;
		break;
	case 'p': case 'k':
		op->t = c == 'p' ? OP_RING : OP_SPLICE;
		op->n = (uint16_t)(op->n > 8 ? 8 : op->n);
		break;
	case 'P': case 'i':
		op->t = c == 'P' ? OP_PINREAD : OP_PINWRITE;
		op->a = 0;
		for (i = 0; i < NPIN; i++)
			if (S->pin[i].used && S->pin[i].proc == row.p)
				op->a = (uint16_t)i;
		break;
	case 'C': case 'K':
		op->t = OP_CHECK;
		op->p = c == 'C' ? row.p : row.q;
		break;
	}
	if (!*row.at)
		row.at = NULL;
}

/* A new episode: forget the row that the end of the last one cut off. */
void op_gen_start(uint64_t seed)
{
	row.at = NULL;
	wide = seed % 8 == 0;
}

void op_gen(struct rng *r, struct op *op)
{
	unsigned int i, w, total = 0;

	memset(op, 0, sizeof(*op));
	if (row.at && below(r, 5)) {
		row_next(r, op);
		return;
	}
	if (!row.at && !below(r, 8))
		row_begin(r);
	op->t = (uint8_t)pick_type(r);
	op->p = (uint8_t)gen_alive(r);
	op->q = (uint8_t)gen_alive(r);
	op->v = (uint32_t)rnd(r);
	gen_range(r, op);
	switch (op->t) {
	case OP_MAP:
	case OP_MAPSH:
		if (below(r, 2)) {	/* big areas are what folios need */
			op->a = (uint16_t)(below(r, NPAGES / 512) * 512);
			op->n = 512;
		}
		op->v = below(r, 8) ? 3 : 1;
		break;
	case OP_WRITE:
	case OP_KWRITE:
		if ((op->v & 7) == 5 && below(r, 4))
			op->v &= ~7U;
		break;
	case OP_FORK:
		for (i = 0; i < opt_procs && S->pr[i].alive; i++)
			;
		op->q = (uint8_t)(i < opt_procs ? i : 0);
		op->a = op->n = 0;
		break;
	case OP_EXIT:
		if (count_alive() < 2)
			op->t = OP_READ;
		break;
	case OP_MREMAP: {
		struct op to = *op;

		gen_range(r, &to);
		if (!below(r, 3))	/* a little off: never aligned again */
			to.a = (uint16_t)(op->a + below(r, 9) + op->n);
		op->b = to.a;
		op->v = below(r, 6) == 0;
		break;
	}
	case OP_MPROTECT:
		op->v = (uint32_t[]){ 3, 3, 3, 1, 1, 0 }[below(r, 6)];
		break;
	case OP_MADVISE:
		for (i = 0; i < MADV_NR; i++)
			total += madv_weight[i];
		w = below(r, total);
		for (i = 0; w >= madv_weight[i]; i++)
			w -= madv_weight[i];
		op->v = i;
		break;
	case OP_UFFD_REG:
		op->v = below(r, 2);
		break;
	case OP_UFFD_WP:
	case OP_SCAN:
		op->v = below(r, 4) != 0;
		gen_registered(r, op);
		break;
	case OP_UFFD_UNREG:
		gen_registered(r, op);
		break;
	case OP_SPLICE:
		if (op->n > 8)
			op->n = 8;
		break;
	case OP_RING:
		if (op->n > PINPAGES)
			op->n = PINPAGES;
		break;
	case OP_PINREAD:
	case OP_PINWRITE:
	case OP_UNPIN:
		op->a = (uint16_t)below(r, NPIN);
		for (i = 0; i < NPIN; i++)	/* one that exists, if any */
			if (S->pin[(op->a + i) % NPIN].used) {
				op->a = (uint16_t)((op->a + i) % NPIN);
				op->p = S->pin[op->a].proc;
				break;
			}
		break;
	case OP_RECLAIM:
		op->v = 1 + below(r, 6);
		break;
	case OP_MEMLIMIT:
		op->v = below(r, 2);
		break;
	case OP_CHECK:
		op->n = (uint16_t)(op->n < 64 && op->a + 64U <= NPAGES ? 64 : op->n);
		break;
	}
}

/* An episode begins with memory to work on, folio sizes and switches of its own. */
void op_begin(struct op *op, unsigned int step)
{
	if (step < NPAGES / 512) {
		*op = (struct op){ .t = OP_MAP, .n = 512, .v = 3, .a = (uint16_t)(step * 512) };
	} else if (step < 6) {
		op->t = OP_THP;
		op->p = 0;
	} else if (step < 8) {	/* the first two: wp_reuse and wp_copy */
		op->t = OP_KNOB;
		op->p = 0;
		op->v = op->v / 5 * 5 + step - 6;
	}
}

void op_print(char *buf, size_t len, const struct op *op)
{
	snprintf(buf, len, "%s p=%u q=%u a=%u n=%u b=%u v=%u",
		 op_info[op->t].name, op->p, op->q, op->a, op->n, op->b, op->v);
}

int op_parse(const char *line, struct op *op)
{
	unsigned int p, q, a, n, b, v, i;
	char name[32];

	if (sscanf(line, "%31s p=%u q=%u a=%u n=%u b=%u v=%u",
		   name, &p, &q, &a, &n, &b, &v) != 7)
		return -1;
	for (i = 0; i < OP_NR && strcmp(op_info[i].name, name); i++)
		;
	if (i == OP_NR || p >= NPROC || q >= NPROC || a >= NPAGES ||
	    a + n > NPAGES || b > NPAGES + 800)
		return -1;
	*op = (struct op){ .t = (uint8_t)i, .p = (uint8_t)p, .q = (uint8_t)q,
			   .a = (uint16_t)a, .n = (uint16_t)n,
			   .b = (uint16_t)b, .v = v };
	return 0;
}

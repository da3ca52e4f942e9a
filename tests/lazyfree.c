// SPDX-License-Identifier: GPL-2.0
/*
 * madvise() with MADV_FREE, MADV_COLD and MADV_PAGEOUT on large folios, named
 * as a whole or in part: what is written after the call stays, what is not
 * named does not change, what is named holds its old contents or zeroes; and
 * which folios there are afterwards. All but the last holds on any kernel.
 */
#include "common.h"

#include <sys/uio.h>

#include <mm/gup_test.h>

#define GUP_TEST_FILE	"/sys/kernel/debug/gup_test"
#define KNOB		"madv_free_batch"

/* Does this kernel, in this mode, cut a folio only where it must? */
static bool cuts(const char *mode)
{
	return mode && !strcmp(mode, "1");
}

/* --- parts of a folio ----------------------------------------------------- */

struct part {
	int first, n;
};

#define MAX_PARTS	16

/* Ends and middle, one page and all but one, aligned and not. */
static int parts_of(int pages, struct part *parts)
{
	const struct part all[] = {
		{ 0, pages / 2 },
		{ pages / 2, pages / 2 },
		{ pages / 4, pages / 2 },
		{ 0, 1 },
		{ pages - 1, 1 },
		{ pages / 2 - 1, 2 },
		{ pages / 2, 1 },
		{ 1, pages - 2 },
		{ 1, pages - 1 },
		{ 0, pages - 1 },
		{ pages / 2 + 1, pages / 4 },
	};
	int n = ARRAY_SIZE(all);

	memcpy(parts, all, sizeof(all));
	/* Emulation is slow, and there is nothing else about the largest. */
	return pages >= 256 ? 7 : n;
}

/*
 * Are these pages in the largest folios that reach across none of @ends? Orders
 * 0 and 2 and more exist.
 */
static bool in_pieces(const char *mem, int pos, int pages, const int *ends, int nr)
{
	bool across = pages == 2;

	for (int i = 0; i < nr; i++)
		across |= pos < ends[i] && ends[i] < pos + pages;
	if (!across) {
		if (is_folios(mem + pos * PAGE, pages * PAGE, pages * PAGE))
			return true;
		ksft_print_msg("pages %d to %d are not one folio\n", pos,
			       pos + pages - 1);
		return false;
	}
	return in_pieces(mem, pos, pages / 2, ends, nr) &&
	       in_pieces(mem, pos + pages / 2, pages / 2, ends, nr);
}

/* --- what a page may hold ------------------------------------------------- */

/* After MADV_FREE a page holds what it held or zeroes; and zeroes for good. */
struct model {
	int *gen;	/* of the stamp last written, or -1: zeroes */
	bool *freed;
};

static int model_get(struct model *m, int pages)
{
	m->gen = calloc(pages, sizeof(*m->gen));
	m->freed = calloc(pages, sizeof(*m->freed));
	FAIL_IF(!m->gen || !m->freed, "calloc");
	return KSFT_PASS;
}

static bool is_zero(const char *page)
{
	static const char zero[PAGE];

	return !memcmp(page, zero, PAGE);
}

static int model_check(const struct region *r, struct model *m, const char *when)
{
	for (int i = 0; i < r->pages; i++) {
		const char *page = r->mem + i * PAGE;

		if (m->gen[i] >= 0 && stamp_ok(page, i, m->gen[i]))
			continue;
		if ((m->freed[i] || m->gen[i] < 0) && is_zero(page)) {
			m->gen[i] = -1;
			continue;
		}
		stamp_bad(page, i, 1, m->gen[i] < 0 ? 0 : m->gen[i]);
		FAIL_IF(true, "%s: page %d (%s, generation %d) has other contents",
			when, i, m->freed[i] ? "named" : "not named", m->gen[i]);
	}
	return KSFT_PASS;
}

static void model_write(const struct region *r, struct model *m, int page, int gen)
{
	stamp_page(r->mem + page * PAGE, page, gen);
	m->gen[page] = gen;
	m->freed[page] = false;
}

static int model_free(const struct region *r, struct model *m, struct part p)
{
	SYS(madvise(r->mem + p.first * PAGE, p.n * PAGE, MADV_FREE));
	for (int i = p.first; i < p.first + p.n; i++)
		m->freed[i] = true;
	return KSFT_PASS;
}

/*
 * Folios that were just mapped are on their way to a list in a batch of their CPU,
 * where they can be neither lazily freed nor reclaimed, and madvise() drains the
 * batch of the CPU it runs on: what counts folios must not change CPUs.
 */
static int stay_on_cpu(void)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(sched_getcpu(), &set);
	SYS(sched_setaffinity(0, sizeof(set), &set));
	return KSFT_PASS;
}

/* Reclaim as much of the region as can be, whatever it takes. */
static int reclaim(const struct region *r)
{
	/* Folios may be on their way to a list, which takes a drain. */
	SYS(madvise(r->mem, r->size, MADV_PAGEOUT));
	SYS(madvise(r->mem, r->size, MADV_PAGEOUT));
	return KSFT_PASS;
}

/* --- named as a whole ------------------------------------------------------ */

static int whole(const struct layout *l, const char *mode)
{
	struct region r;
	struct model m;

	NEED(stay_on_cpu());
	NEED(region_get(&r, l, FEW(l)));
	NEED(model_get(&m, r.pages));
	NEED(model_free(&r, &m, (struct part) { 0, r.pages }));
	/* Drain the batch of folios that are on their way to the list. */
	SYS(madvise(mmap_anon(NULL, PAGE, PROT_READ), PAGE, MADV_COLD));
	FAIL_IF(!is_folios(r.mem, r.size, r.folio), "folios were split");
	FAIL_IF(smaps_kb(r.mem, "LazyFree") != (long)KB(r.size),
		"LazyFree is %ld kB, not %lu", smaps_kb(r.mem, "LazyFree"),
		(unsigned long)KB(r.size));
	FAIL_STAMP(r.mem, 0, r.pages, 0, "freed though there is memory");
	NEED(reclaim(&r));
	return model_check(&r, &m, "after reclaim");
}

/* One page is written after the call, by turns each kind of place in a batch. */
static int whole_written(const struct layout *l, const char *mode)
{
	const int pages = l->folio / PAGE;
	const int places[] = { 0, 1, pages / 2, pages - 1 };

	for (int i = 0; i < 4; i++) {
		struct region r;
		struct model m;

		NEED(region_get(&r, l, 1));
		NEED(model_get(&m, r.pages));
		NEED(model_free(&r, &m, (struct part) { 0, r.pages }));
		model_write(&r, &m, places[i] % pages, 1);
		NEED(reclaim(&r));
		NEED(model_check(&r, &m, "after reclaim"));
		munmap(r.mem, r.size);
	}
	return KSFT_PASS;
}

/*
 * One page was written before a second call. Its dirty bit must go, though it
 * is not that of the batch's first PTE: then all of the folio can be dropped.
 */
static int whole_again(const struct layout *l, const char *mode)
{
	const int pages = l->folio / PAGE;
	const int places[] = { 0, 1, pages / 2, pages - 1 };

	NEED(stay_on_cpu());
	NEED(need_swap());
	for (int i = 0; i < 4; i++) {
		struct region r;

		NEED(region_get(&r, l, 1));
		SYS(madvise(r.mem, r.size, MADV_FREE));
		stamp_page(r.mem + places[i] % pages * PAGE, 0, 1);
		SYS(madvise(r.mem, r.size, MADV_FREE));
		NEED(reclaim(&r));
		FAIL_IF(smaps_kb(r.mem, "Swap") != 0,
			"page %d: %ld kB went to swap", places[i],
			smaps_kb(r.mem, "Swap"));
		FAIL_IF(zero_bad(r.mem, r.pages) >= 0, "page %d: not all dropped",
			places[i]);
		munmap(r.mem, r.size);
	}
	return KSFT_PASS;
}

#define LRU_GEN		"/sys/kernel/mm/lru_gen/enabled"
#define GENERATIONS	"/sys/kernel/debug/lru_gen"

/*
 * Pages of the cgroup that the multi-gen LRU has as files, as it has what is lazily
 * freed: in the two youngest generations, which it calls active, and in older ones.
 */
static int generations(long *active, long *inactive)
{
	static char buf[65536];
	long files, youngest = 0;
	const char *line;

	*active = *inactive = 0;
	FAIL_IF(file_read(GENERATIONS, buf, sizeof(buf)) <= 0, GENERATIONS);
	line = strstr(buf, "/wf-test\n");
	FAIL_IF(!line, "lru_gen does not have the cgroup");
	while ((line = strchr(line, '\n')) && strncmp(++line, "memcg", 5))
		if (sscanf(line, " %*u %*u %*u %ld", &files) == 1) {
			*inactive += *active - youngest;
			*active = youngest + files;
			youngest = files;
		}
	return KSFT_PASS;
}

/* What was just written is in an active generation, and PG_active says that it is to stay. */
static int whole_inactive(const struct layout *l, const char *mode)
{
	long active, inactive, active_then, inactive_then;
	struct region r;
	char was[16];

	if (file_read(LRU_GEN, was, sizeof(was)) <= 0)
		return skip("kernel has no multi-gen LRU (CONFIG_LRU_GEN)");
	if (access(GENERATIONS, R_OK))
		return skip("no " GENERATIONS);
	NEED(stay_on_cpu());
	NEED(cgroup_enter());
	FAIL_IF(file_write(LRU_GEN, "y"), LRU_GEN);
	NEED(region_get(&r, l, FEW(l)));
	NEED(generations(&active, &inactive));
	SYS(madvise(r.mem, r.size, MADV_FREE));
	SYS(madvise(mmap_anon(NULL, PAGE, PROT_READ), PAGE, MADV_COLD));
	NEED(generations(&active_then, &inactive_then));
	FAIL_IF(file_write(LRU_GEN, was), LRU_GEN);
	FAIL_IF(active_then != active || inactive_then != inactive + r.pages,
		"of %d pages %ld went to an active generation, %ld to an inactive one",
		r.pages, active_then - active, inactive_then - inactive);
	return KSFT_PASS;
}

/* --- named in part -------------------------------------------------------- */

static int part_pieces(const struct layout *l, const char *mode)
{
	struct part parts[MAX_PARTS];
	int nr = parts_of(l->folio / PAGE, parts);

	for (int i = 0; i < nr; i++) {
		const struct part p = parts[i];
		const int ends[] = { p.first, p.first + p.n };
		const long before = thp_stat(l->folio, "madv_free_cut");
		const long expected = cuts(mode) ? 1 : 0;
		struct region r;
		struct model m;

		NEED(region_get(&r, l, 1));
		NEED(model_get(&m, r.pages));
		NEED(model_free(&r, &m, p));
		if (cuts(mode))
			FAIL_IF(!in_pieces(r.mem, 0, r.pages, ends, 2),
				"%d pages from %d", p.n, p.first);
		FAIL_IF(mode && thp_stat(l->folio, "madv_free_cut") - before != expected,
			"madv_free_cut counted %ld, not %ld",
			thp_stat(l->folio, "madv_free_cut") - before, expected);
		if (cuts(mode))
			FAIL_IF(smaps_kb(r.mem, "LazyFree") != 4 * p.n,
				"LazyFree is %ld kB", smaps_kb(r.mem, "LazyFree"));
		FAIL_STAMP(r.mem, 0, r.pages, 0, "%d pages from %d", p.n, p.first);
		NEED(reclaim(&r));
		NEED(model_check(&r, &m, "after reclaim"));
		munmap(r.mem, r.size);
	}
	return KSFT_PASS;
}

static int part_written(const struct layout *l, const char *mode)
{
	struct part parts[MAX_PARTS];
	int nr = parts_of(l->folio / PAGE, parts);

	for (int i = 0; i < nr; i++) {
		const struct part p = parts[i];
		struct region r;
		struct model m;

		NEED(region_get(&r, l, 1));
		NEED(model_get(&m, r.pages));
		NEED(model_free(&r, &m, p));
		/* Every other page of those named, and the ones beside them. */
		for (int k = p.first + p.n / 2 % 2; k < p.first + p.n; k += 2)
			model_write(&r, &m, k, 1);
		if (p.first)
			model_write(&r, &m, p.first - 1, 1);
		if (p.first + p.n < r.pages)
			model_write(&r, &m, p.first + p.n, 1);
		NEED(reclaim(&r));
		NEED(model_check(&r, &m, "after reclaim"));
		for (int k = 0; k < r.pages; k++)
			model_write(&r, &m, k, 2);
		NEED(reclaim(&r));
		NEED(model_check(&r, &m, "written again, after reclaim"));
		munmap(r.mem, r.size);
	}
	return KSFT_PASS;
}

static int part_several(const struct layout *l, const char *mode)
{
	const int pages = l->folio / PAGE;
	const struct part parts[] = {
		{ pages / 2, 1 }, { 0, 1 }, { pages - 1, 1 }, { pages / 4, pages / 8 },
	};
	int ends[8], nr = 0;
	struct region r;
	struct model m;

	NEED(region_get(&r, l, 1));
	NEED(model_get(&m, r.pages));
	for (int i = 0; i < 4; i++) {
		if (!parts[i].n)
			continue;
		NEED(model_free(&r, &m, parts[i]));
		ends[nr++] = parts[i].first;
		ends[nr++] = parts[i].first + parts[i].n;
		if (cuts(mode))
			FAIL_IF(!in_pieces(r.mem, 0, r.pages, ends, nr),
				"call %d", i + 1);
	}
	FAIL_STAMP(r.mem, 0, r.pages, 0, "contents");
	NEED(reclaim(&r));
	return model_check(&r, &m, "after reclaim");
}

/* One call over the end of one folio, a whole one, and the start of a third. */
static int part_across(const struct layout *l, const char *mode)
{
	const int pages = l->folio / PAGE;
	const struct part p = { pages / 2, 2 * pages };
	const int ends[] = { p.first, p.first + p.n };
	struct region r;
	struct model m;

	NEED(region_get(&r, l, 3));
	NEED(model_get(&m, r.pages));
	NEED(model_free(&r, &m, p));
	for (int i = 0; cuts(mode) && i < 3; i++)
		FAIL_IF(!in_pieces(r.mem, i * pages, pages, ends, 2), "folio %d", i);
	model_write(&r, &m, pages, 1);
	NEED(reclaim(&r));
	return model_check(&r, &m, "after reclaim");
}

/* PFNs, soft-dirty, exclusive: pagemap tells the same of what is not named. */
static int part_ptes(const struct layout *l, const char *mode)
{
	struct part parts[MAX_PARTS];
	int nr = parts_of(l->folio / PAGE, parts);

	for (int i = 0; i < nr; i++) {
		const struct part p = parts[i];
		struct region r;
		uint64_t *before;

		NEED(region_get(&r, l, 1));
		before = calloc(r.pages, sizeof(*before));
		FAIL_IF(!before, "calloc");
		for (int k = 0; k < r.pages; k++)
			before[k] = pm_entry(r.mem + k * PAGE);
		SYS(madvise(r.mem + p.first * PAGE, p.n * PAGE, MADV_FREE));
		for (int k = 0; k < r.pages; k++)
			FAIL_IF(pm_entry(r.mem + k * PAGE) != before[k],
				"page %d of %d from %d: pagemap %#llx, was %#llx",
				k, p.n, p.first,
				(unsigned long long)pm_entry(r.mem + k * PAGE),
				(unsigned long long)before[k]);
		munmap(r.mem, r.size);
		free(before);
	}
	return KSFT_PASS;
}

/*
 * What is not named stays writable, and stays exclusive: after the loss of
 * write permission it is given back without a fault.
 */
static int part_exclusive(const struct layout *l, const char *mode)
{
	struct part parts[MAX_PARTS];
	int nr = parts_of(l->folio / PAGE, parts);

	for (int i = 0; i < nr; i++) {
		const struct part p = parts[i];
		struct region r;

		NEED(region_get(&r, l, 1));
		SYS(madvise(r.mem + p.first * PAGE, p.n * PAGE, MADV_FREE));
		for (int pass = 0; pass < 2; pass++) {
			for (int k = 0; k < r.pages; k++)
				FAIL_IF(store_faults(r.mem + k * PAGE, k) != 0,
					"%d pages from %d: page %d faults%s", p.n,
					p.first, k, pass ? " after mprotect" : "");
			SYS(mprotect(r.mem, r.size, PROT_READ));
			SYS(mprotect(r.mem, r.size, PROT_READ | PROT_WRITE));
		}
		munmap(r.mem, r.size);
	}
	return KSFT_PASS;
}

/* Read-only PTEs whose pages may be shared, though the child is gone. */
static int part_unshared(const struct layout *l, const char *mode)
{
	const struct part p = { l->folio / PAGE / 2 - 1, 2 };
	const int ends[] = { p.first, p.first + p.n };
	struct region r;
	struct model m;

	NEED(region_get_unshared(&r, l, 1));
	NEED(model_get(&m, r.pages));
	NEED(model_free(&r, &m, p));
	if (cuts(mode))
		FAIL_IF(!in_pieces(r.mem, 0, r.pages, ends, 2), "not cut");
	NEED(model_check(&r, &m, "after the call"));
	for (int i = 0; i < r.pages; i++) {
		uint64_t pfn = pm_pfn(r.mem + i * PAGE);

		model_write(&r, &m, i, 1);
		FAIL_IF(cuts(mode) && pm_pfn(r.mem + i * PAGE) != pfn,
			"page %d was copied", i);
	}
	NEED(reclaim(&r));
	return model_check(&r, &m, "after reclaim");
}

/* --- what must be left in place -------------------------------------------- */

static int shared(const struct layout *l, const char *mode)
{
	const struct part p = { l->folio / PAGE / 2 - 1, 2 };
	const int ends[] = { p.first, p.first + p.n };
	struct region r;
	struct model m;
	struct peer peer;

	NEED(region_get(&r, l, 1));
	NEED(model_get(&m, r.pages));
	NEED(peer_fork(&peer));
	NEED(model_free(&r, &m, p));
	FAIL_IF(!is_folios(r.mem, r.size, r.folio), "shared folio was split");
	FAIL_STAMP(r.mem, 0, r.pages, 0, "parent");
	NEED(reclaim(&r));
	NEED(model_check(&r, &m, "parent, after reclaim"));
	FAIL_IF(!peer_stamped(&peer, r.mem, 0, r.pages, 0), "child lost contents");
	FAIL_IF(!peer_quit(&peer), "child");
	NEED(model_free(&r, &m, p));
	if (cuts(mode) && is_folios(r.mem, PAGE, PAGE))
		FAIL_IF(!in_pieces(r.mem, 0, r.pages, ends, 2), "not cut");
	return model_check(&r, &m, "alone again");
}

/* Fork between call and write: each keeps what it writes. */
static int forked(const struct layout *l, const char *mode)
{
	struct part parts[MAX_PARTS];
	int nr = parts_of(l->folio / PAGE, parts);

	nr = nr > 5 ? 5 : nr;
	for (int i = 0; i < nr; i++) {
		const struct part p = parts[i];
		struct region r;
		struct model m;
		struct peer peer;

		NEED(region_get(&r, l, 1));
		NEED(model_get(&m, r.pages));
		NEED(model_free(&r, &m, p));
		NEED(peer_fork(&peer));
		model_write(&r, &m, p.first, 1);
		FAIL_IF(!peer_stamp(&peer, r.mem + (p.first + p.n - 1) * PAGE,
				    p.first + p.n - 1, 1, 2), "child");
		NEED(reclaim(&r));
		NEED(model_check(&r, &m, "parent, after reclaim"));
		FAIL_IF(!peer_stamped(&peer, r.mem + (p.first + p.n - 1) * PAGE,
				      p.first + p.n - 1, 1, 2), "child lost its write");
		FAIL_IF(p.first && !peer_stamped(&peer, r.mem, 0, p.first, 0),
			"child lost what was not named");
		FAIL_IF(!peer_quit(&peer), "child");
		NEED(reclaim(&r));
		NEED(model_check(&r, &m, "parent alone, after reclaim"));
		munmap(r.mem, r.size);
	}
	return KSFT_PASS;
}

/* A long-term pin, as of a fixed buffer of io_uring. */
static int pinned(const struct layout *l, const char *mode)
{
	const int pages = l->folio / PAGE, pin = pages / 2;
	const struct part p = { pages / 2 - 1, 2 };
	const int ends[] = { p.first, p.first + p.n };
	struct pin_longterm_test args;
	struct region r;
	struct model m;
	char buf[PAGE] = "";
	__u64 val = (uintptr_t)buf;
	int fd;

	NEED(region_get(&r, l, 1));
	NEED(model_get(&m, r.pages));
	fd = open(GUP_TEST_FILE, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return skip("no " GUP_TEST_FILE " (CONFIG_GUP_TEST)");
	args = (struct pin_longterm_test) {
		.addr = (uintptr_t)r.mem + pin * PAGE, .size = PAGE,
		.flags = PIN_LONGTERM_TEST_FLAG_USE_WRITE,
	};
	SYS(ioctl(fd, PIN_LONGTERM_TEST_START, &args));

	NEED(model_free(&r, &m, p));
	FAIL_IF(!is_folios(r.mem, r.size, r.folio), "pinned folio was split");
	FAIL_STAMP(r.mem, 0, r.pages, 0, "pinned");
	NEED(reclaim(&r));
	NEED(model_check(&r, &m, "pinned, after reclaim"));
	for (int i = 0; i < r.pages; i++)
		model_write(&r, &m, i, 1);
	SYS(ioctl(fd, PIN_LONGTERM_TEST_READ, &val));
	FAIL_IF(!stamp_ok(buf, pin, 1), "pin and process see different pages");
	SYS(ioctl(fd, PIN_LONGTERM_TEST_STOP));
	close(fd);

	if (!is_folios(r.mem, r.size, r.folio))
		return model_check(&r, &m, "no longer pinned");
	NEED(model_free(&r, &m, p));
	if (cuts(mode))
		FAIL_IF(!in_pieces(r.mem, 0, r.pages, ends, 2), "not cut");
	NEED(reclaim(&r));
	return model_check(&r, &m, "no longer pinned, after reclaim");
}

/* A reference by a pipe. */
static int spliced(const struct layout *l, const char *mode)
{
	const int pages = l->folio / PAGE, k = pages / 2;
	const struct part p = { pages / 2 - 1, 2 };
	struct iovec iov;
	struct region r;
	struct model m;
	char buf[PAGE];
	int fd[2];

	NEED(region_get(&r, l, 1));
	NEED(model_get(&m, r.pages));
	iov = (struct iovec) { r.mem + k * PAGE, PAGE };
	SYS(pipe(fd));
	FAIL_IF(vmsplice(fd[1], &iov, 1, 0) != (ssize_t)PAGE, "vmsplice");
	NEED(model_free(&r, &m, p));
	FAIL_IF(!is_folios(r.mem, r.size, r.folio), "folio of a pipe was split");
	NEED(reclaim(&r));
	NEED(model_check(&r, &m, "after reclaim"));
	FAIL_IF(read(fd[0], buf, PAGE) != (ssize_t)PAGE, "read");
	FAIL_IF(!stamp_ok(buf, k, 0), "pipe has other contents");
	for (int i = 0; i < r.pages; i++)
		model_write(&r, &m, i, 1);
	NEED(reclaim(&r));
	return model_check(&r, &m, "written, after reclaim");
}

/* --- unusual mappings ------------------------------------------------------ */

/* Moved by a page: the folio is not aligned, and spans two page tables. */
static int moved(const struct layout *l, const char *mode)
{
	const int pages = l->folio / PAGE;
	const struct part parts[] = {
		{ pages / 2 - 1, 2 }, { 0, 1 }, { pages - 1, 1 }, { 1, pages / 2 },
	};

	for (int i = 0; i < 4; i++) {
		struct region r;
		struct model m;
		char *to;

		NEED(region_get(&r, l, 1));
		NEED(model_get(&m, r.pages));
		to = reserve(r.size + 2 * MB2);
		FAIL_IF(!to, "mmap");
		r.mem = move(r.mem, r.size,
			     to + MB2 - (i & 1 ? PAGE : pages / 2 * PAGE));
		FAIL_IF(!r.mem, "mremap");
		NEED(model_free(&r, &m, parts[i]));
		FAIL_STAMP(r.mem, 0, r.pages, 0, "after the call");
		model_write(&r, &m, parts[i].first, 1);
		NEED(reclaim(&r));
		NEED(model_check(&r, &m, "after reclaim"));
		munmap(r.mem, r.size);
	}
	return KSFT_PASS;
}

/* The folio's second half belongs to another VMA, without write permission. */
static int two_vmas(const struct layout *l, const char *mode)
{
	const struct part p = { 1, l->folio / PAGE / 2 - 1 };
	struct region r;
	struct model m;
	char *half;

	NEED(region_get(&r, l, 1));
	NEED(model_get(&m, r.pages));
	half = r.mem + r.size / 2;
	SYS(mprotect(half, r.size / 2, PROT_READ));
	NEED(model_free(&r, &m, p));
	FAIL_STAMP(r.mem, 0, r.pages, 0, "after the call");
	FAIL_IF(store_signal(half) != SIGSEGV, "write permission came back");
	NEED(reclaim(&r));
	NEED(model_check(&r, &m, "after reclaim"));
	FAIL_IF(store_signal(half) != SIGSEGV, "write permission came back");
	return KSFT_PASS;
}

/* A hole in the folio, in front of the part named or within it. */
static int holes(const struct layout *l, const char *mode)
{
	const int pages = l->folio / PAGE;
	const struct { int hole; struct part p; } cases[] = {
		{ 0, { pages / 2, 1 } },
		{ pages / 2, { pages / 2 - 1, 3 > pages / 2 ? 2 : 3 } },
		{ pages / 2, { 0, pages } },
		{ pages - 1, { 0, pages } },
	};

	for (int i = 0; i < 4; i++) {
		struct region r;
		struct model m;

		NEED(region_get(&r, l, 1));
		NEED(model_get(&m, r.pages));
		SYS(madvise(r.mem + cases[i].hole * PAGE, PAGE, MADV_DONTNEED));
		m.gen[cases[i].hole] = -1;
		NEED(model_free(&r, &m, cases[i].p));
		NEED(model_check(&r, &m, "after the call"));
		model_write(&r, &m, cases[i].p.first, 1);
		NEED(reclaim(&r));
		NEED(model_check(&r, &m, "after reclaim"));
		munmap(r.mem, r.size);
	}
	return KSFT_PASS;
}

/* --- swap ------------------------------------------------------------------ */

/* Swapped out, in part read back, so that folios are in the swap cache. */
static int swapped(const struct layout *l, const char *mode)
{
	const int pages = l->folio / PAGE;

	NEED(need_swap());
	for (int readback = 0; readback < 3; readback++) {
		const struct part p = { pages / 4, pages / 2 };
		struct region r;
		struct model m;

		NEED(region_get(&r, l, 1));
		NEED(model_get(&m, r.pages));
		NEED(reclaim(&r));
		for (int i = 0; i < r.pages; i += readback == 1 ? 3 : 1)
			if (readback)
				((volatile char *)r.mem)[i * PAGE];
		NEED(model_free(&r, &m, p));
		NEED(model_check(&r, &m, "after the call"));
		model_write(&r, &m, p.first, 1);
		NEED(reclaim(&r));
		NEED(model_check(&r, &m, "after reclaim"));
		munmap(r.mem, r.size);
	}
	return KSFT_PASS;
}

/* MADV_COLD and MADV_PAGEOUT cut in the same way. */
static int part_of_advice(const struct layout *l, const char *mode, int advice)
{
	struct part parts[MAX_PARTS];
	int nr = parts_of(l->folio / PAGE, parts);

	NEED(need_swap());
	for (int i = 0; i < nr; i++) {
		const struct part p = parts[i];
		const int ends[] = { p.first, p.first + p.n };
		const int last = p.first + p.n;
		struct region r;
		struct model m;

		NEED(region_get(&r, l, 1));
		NEED(model_get(&m, r.pages));
		SYS(madvise(r.mem + p.first * PAGE, p.n * PAGE, advice));
		/* What is named may be gone; look at what lies on either side. */
		for (int size = 1; cuts(mode) && size < r.pages; size *= 2) {
			if (size == 2)
				continue;
			for (int pos = 0; pos < r.pages; pos += size)
				if ((pos + size == p.first || pos == last) &&
				    pos % (2 * size) == (pos == last ? size : 0) &&
				    !(pos + size == p.first && size == 1) &&
				    !(pos == last && size == 1))
					FAIL_IF(!in_pieces(r.mem, pos, size, ends, 2),
						"%d pages from %d", p.n, p.first);
		}
		for (int k = 0; k < r.pages; k++)
			FAIL_IF((k < p.first || k >= last) &&
				!(pm_entry(r.mem + k * PAGE) & PM_PRESENT),
				"page %d is gone, but not named", k);
		NEED(model_check(&r, &m, "after the call"));
		model_write(&r, &m, p.first, 1);
		NEED(reclaim(&r));
		NEED(model_check(&r, &m, "after reclaim"));
		munmap(r.mem, r.size);
	}
	return KSFT_PASS;
}

static int part_cold(const struct layout *l, const char *mode)
{
	return part_of_advice(l, mode, MADV_COLD);
}

static int part_pageout(const struct layout *l, const char *mode)
{
	return part_of_advice(l, mode, MADV_PAGEOUT);
}

/* Pressure in a memory cgroup instead of advice. */
static int pressure(const struct layout *l, const char *mode)
{
	const int pages = l->folio / PAGE;
	struct region r;
	struct model m;

	NEED(need_swap());
	NEED(cgroup_enter());
	NEED(region_get(&r, l, MB2 / l->folio * 2));
	NEED(model_get(&m, r.pages));
	for (int f = 0; f < r.pages; f += pages)
		NEED(model_free(&r, &m, (struct part) { f + pages / 4, pages / 2 }));
	for (int f = 0; f < r.pages; f += pages) {
		model_write(&r, &m, f + pages / 4, 1);
		model_write(&r, &m, f, 1);
	}
	FAIL_IF(cgroup_limit(cgroup_current() * 3 / 4), "memory.max");
	NEED(model_check(&r, &m, "under pressure"));
	for (int i = 0; i < r.pages; i++)
		model_write(&r, &m, i, 2);
	NEED(model_check(&r, &m, "written under pressure"));
	return KSFT_PASS;
}

/* --- at the same time ------------------------------------------------------ */

struct writer {
	pthread_t thread;
	const struct region *r;
	struct part p;		/* named over and over by the main thread */
	bool stop;
	const char *bad;
	long rounds;
};

/*
 * Write to pages that are not named, beside those that are, while their folios
 * are cut and reclaimed. Only this thread writes there: a word holds what it
 * wrote last.
 */
static void *beside(void *arg)
{
	struct writer *w = arg;
	uint64_t n = 0;

	while (!__atomic_load_n(&w->stop, __ATOMIC_RELAXED) && !w->bad) {
		for (int i = 0; i < w->r->pages; i++) {
			volatile uint64_t *word = (void *)(w->r->mem + i * PAGE);

			if (i % w->r->fpages >= w->p.first &&
			    i % w->r->fpages < w->p.first + w->p.n)
				continue;
			if (n && word[7] != n)
				w->bad = "a write to a page not named was lost";
			word[7] = n + 1;
		}
		n++;
		w->rounds++;
	}
	return NULL;
}

/* Take references by the fast path, all the time, and look at what is there. */
static void *splicer(void *arg)
{
	struct writer *w = arg;
	char buf[PAGE];
	int fd[2];

	if (pipe(fd))
		return NULL;
	while (!__atomic_load_n(&w->stop, __ATOMIC_RELAXED) && !w->bad) {
		for (int i = 0; i < w->r->pages; i++) {
			struct iovec iov = { w->r->mem + i * PAGE, PAGE };
			bool named = i % w->r->fpages >= w->p.first &&
				     i % w->r->fpages < w->p.first + w->p.n;

			if (vmsplice(fd[1], &iov, 1, 0) != (ssize_t)PAGE ||
			    read(fd[0], buf, PAGE) != (ssize_t)PAGE) {
				w->bad = "vmsplice or read failed";
				break;
			}
			if (named && is_zero(buf))
				continue;
			if (((uint64_t *)buf)[3] != (uint64_t)i + 1)
				w->bad = "a reference to the wrong page";
		}
		w->rounds++;
	}
	return NULL;
}

static int with_thread(const struct layout *l, void *(*fn)(void *))
{
	const int pages = l->folio / PAGE, rounds = pages >= 256 ? 6 : 20;
	struct part parts[MAX_PARTS];
	int nr = parts_of(pages, parts);

	for (int i = 0; i < rounds; i++) {
		struct writer w = { .p = parts[i % nr] };
		struct region r;

		NEED(region_get(&r, l, FEW(l)));
		memset(r.mem, 0, r.size);
		for (int k = 0; k < r.pages; k++)
			((uint64_t *)(r.mem + k * PAGE))[3] = k + 1;
		w.r = &r;
		FAIL_IF(pthread_create(&w.thread, NULL, fn, &w), "pthread_create");
		while (!__atomic_load_n(&w.rounds, __ATOMIC_RELAXED) && !w.bad)
			sched_yield();
		for (int f = 0; f < r.pages; f += r.fpages) {
			SYS(madvise(r.mem + (f + w.p.first) * PAGE, w.p.n * PAGE,
				    MADV_FREE));
			/* Written after the call, by this thread: must stay. */
			((uint64_t *)(r.mem + (f + w.p.first) * PAGE))[9] = 9;
			((uint64_t *)(r.mem + (f + w.p.first) * PAGE))[3] =
				f + w.p.first + 1;
		}
		NEED(reclaim(&r));
		for (int f = 0; f < r.pages; f += r.fpages)
			FAIL_IF(((uint64_t *)(r.mem + (f + w.p.first) * PAGE))[9] != 9,
				"a write after the call was lost");
		__atomic_store_n(&w.stop, true, __ATOMIC_RELAXED);
		pthread_join(w.thread, NULL);
		FAIL_IF(w.bad, "%s", w.bad);
		munmap(r.mem, r.size);
	}
	return KSFT_PASS;
}

static int writing(const struct layout *l, const char *mode)
{
	return with_thread(l, beside);
}

static int splicing(const struct layout *l, const char *mode)
{
	return with_thread(l, splicer);
}

/* --- at random ------------------------------------------------------------- */

static uint64_t rnd_state;

static unsigned int rnd(unsigned int n)
{
	rnd_state = rnd_state * 6364136223846793005ULL + 1442695040888963407ULL;
	return (rnd_state >> 33) % n;
}

static struct part rnd_part(int pages)
{
	int first = rnd(pages);
	int n = 1 + rnd(rnd(2) ? 4 : pages - first);

	return (struct part) { first, n < pages - first ? n : pages - first };
}

static int random_ops(const struct layout *l, const char *mode)
{
	const int ops = l->folio >= MB2 / 2 ? 60 : 150;

	need_swap();
	for (unsigned int seed = 1; seed <= 3; seed++) {
		struct region r;
		struct model m;
		char when[64];

		rnd_state = seed;
		NEED(region_get(&r, l, l->folio >= MB2 / 2 ? 2 : 4));
		NEED(model_get(&m, r.pages));
		for (int i = 0; i < ops; i++) {
			const struct part p = rnd_part(r.pages);
			const unsigned int op = rnd(12);
			char *at = r.mem + p.first * PAGE;
			size_t len = p.n * PAGE;

			snprintf(when, sizeof(when), "seed %u, step %d, op %u at %d + %d",
				 seed, i, op, p.first, p.n);
			switch (op) {
			case 0 ... 3:
				NEED(model_free(&r, &m, p));
				break;
			case 4 ... 6:
				for (int k = p.first; k < p.first + p.n; k++)
					model_write(&r, &m, k, i + 1);
				break;
			case 7:
				SYS(madvise(at, len, MADV_PAGEOUT));
				break;
			case 8:
				SYS(madvise(at, len, MADV_COLD));
				break;
			case 9:
				NEED(fork_and_exit());
				break;
			case 10:
				SYS(madvise(at, len, MADV_DONTNEED));
				for (int k = p.first; k < p.first + p.n; k++)
					m.gen[k] = -1;
				break;
			case 11:
				SYS(mprotect(at, len, PROT_READ));
				SYS(madvise(r.mem, r.size, MADV_PAGEOUT));
				SYS(mprotect(at, len, PROT_READ | PROT_WRITE));
				break;
			}
			if (i % 8 == 7)
				NEED(model_check(&r, &m, when));
		}
		NEED(reclaim(&r));
		NEED(model_check(&r, &m, "at the end"));
		munmap(r.mem, r.size);
	}
	return KSFT_PASS;
}

#define ALL_LARGE	(ON_EVERY | ON_PMD)

static const struct test_case cases[] = {
	{ "Named as a whole: lazily freed, and still one folio",
	  whole, ALL_LARGE | ON_SMALL },
	{ "Named as a whole, one page written since: that page survives",
	  whole_written, ALL_LARGE | ON_SMALL },
	{ "Named again after one page was written: all of it can be dropped",
	  whole_again, ALL_LARGE | ON_SMALL },
	{ "Named as a whole under the multi-gen LRU: in an inactive generation",
	  whole_inactive, ALL_LARGE | ON_SMALL },
	{ "Named in part: cut where the part starts and ends, nowhere else",
	  part_pieces, ALL_LARGE },
	{ "Named in part: what is written since survives reclaim",
	  part_written, ALL_LARGE },
	{ "Several parts of a folio named one after the other",
	  part_several, ALL_LARGE },
	{ "One call over the end of one folio, a whole one and a start",
	  part_across, ON_LARGE | ON_PMD },
	{ "Named in part: pagemap tells the same as before",
	  part_ptes, ALL_LARGE },
	{ "Named in part: pages stay exclusive and writable",
	  part_exclusive, ALL_LARGE },
	{ "Named in part after a child has come and gone",
	  part_unshared, ALL_LARGE },
	{ "Named in part while a child shares it: left in place",
	  shared, ALL_LARGE },
	{ "Fork between call and write",
	  forked, ON_LARGE | ON_PMD },
	{ "Named in part with a long-term pin: left in place",
	  pinned, ALL_LARGE },
	{ "Named in part with a page in a pipe: left in place",
	  spliced, ALL_LARGE },
	{ "Named in part, moved to an odd address",
	  moved, ON_LARGE },
	{ "Named in part, half of it in another VMA",
	  two_vmas, ON_LARGE | ON_PMD },
	{ "Named in part or as a whole, with a hole",
	  holes, ON_LARGE | ON_PMD },
	{ "Named in part, swapped out and read back",
	  swapped, ON_LARGE | ON_PMD },
	{ "MADV_COLD of a part: cut in the same way",
	  part_cold, ALL_LARGE },
	{ "MADV_PAGEOUT of a part: cut in the same way",
	  part_pageout, ALL_LARGE },
	{ "Named in part, reclaimed by pressure in a memory cgroup",
	  pressure, ON_LARGE | ON_PMD },
	{ "A thread writes beside what is named during the call",
	  writing, ON_LARGE | ON_PMD },
	{ "A thread takes references during the call",
	  splicing, ON_LARGE | ON_PMD },
	{ "Calls, writes, reclaim and forks at random",
	  random_ops, ALL_LARGE },
};

int main(void)
{
	run_cases(cases, ARRAY_SIZE(cases), KNOB);
}

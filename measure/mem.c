// SPDX-License-Identifier: GPL-2.0
/*
 * Memory in folios of a wanted size, and the proof that it is.
 *
 * A figure for "2 MiB folios mapped by PTEs" is worth nothing when half of the
 * memory fell back to single pages, so every region is read back: through
 * /proc/self/pagemap and /proc/kpageflags where they are readable (root), by
 * the per-size statistics and AnonHugePages where they are not.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "measure.h"

#define KPF_ANON		(1ULL << 12)
#define KPF_COMPOUND_HEAD	(1ULL << 15)
#define KPF_COMPOUND_TAIL	(1ULL << 16)

/* PAGEMAP_SCAN of linux/fs.h (6.7); older headers lack it */
struct scan_arg {
	uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
	uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};

struct scan_region {
	uint64_t start, end, categories;
};

#define SCAN_IOCTL	_IOWR('f', 16, struct scan_arg)
#define SCAN_IS_HUGE	(1ULL << 6)

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE	0x100000
#endif
#define LOW			(16 * GB)

static int fd_pagemap = -1, fd_kpageflags = -1;
static uint64_t *cache_flags;	/* see block_flags() */

static void open_proc(void)
{
	static bool tried;

	if (tried)
		return;
	tried = true;
	fd_pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	fd_kpageflags = open("/proc/kpageflags", O_RDONLY | O_CLOEXEC);
}

/* pagemap of the process that asks: children must open their own */
static int own_pagemap(void)
{
	static pid_t owner;

	open_proc();
	if (owner && owner != getpid()) {
		close(fd_pagemap);
		fd_pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
		cache_flags = NULL;	/* scratch memory is not inherited */
	}
	owner = getpid();
	return fd_pagemap;
}

/* ---- which sizes the kernel gives ---------------------------------------- */

static void enabled_path(char *path, size_t len, unsigned int kb)
{
	snprintf(path, len, THP_DIR "/hugepages-%ukB/enabled", kb);
}

static bool has_size(unsigned int kb)
{
	char path[128];

	enabled_path(path, sizeof(path), kb);
	return access(path, F_OK) == 0;
}

/* Does MADV_HUGEPAGE memory get this size, as the settings are now? */
static bool size_on(unsigned int kb)
{
	char path[128], val[64];

	enabled_path(path, sizeof(path), kb);
	if (!setting_get(path, val, sizeof(val)))
		return false;
	if (!strcmp(val, "inherit") &&
	    !setting_get(THP_DIR "/enabled", val, sizeof(val)))
		return false;
	return strcmp(val, "never") != 0;
}

static unsigned int page_kb(void)
{
	return (unsigned int)(pgsize / KB);
}

/* Only the size by PMD, and only one switch: kernels before 6.8. */
static bool legacy(unsigned int kb)
{
	return kb == pmdsize / KB && !has_size(kb) && access(THP_DIR "/enabled", F_OK) == 0;
}

/**
 * size_obtainable - can anonymous folios of the case's size be had here?
 *
 * Return: true, or false after the case was filed as skipped with the reason.
 */
bool size_obtainable(const struct where *w)
{
	char path[128], val[64];
	unsigned int kb;

	if (w->kb == page_kb())
		return true;
	if (w->kb < page_kb()) {
		skip(w, "smaller than a page here (%u KiB)", page_kb());
		return false;
	}
	if (legacy(w->kb)) {
		if (setting_writable(THP_DIR "/enabled"))
			return true;
		if (setting_get(THP_DIR "/enabled", val, sizeof(val)) && strcmp(val, "never"))
			return true;
		skip(w, "transparent huge pages are off; run as root, or enable them in "
		     THP_DIR "/enabled");
		return false;
	}
	if (!has_size(w->kb)) {
		skip(w, "this kernel has no anonymous folios of %u KiB (they need Linux 6.8 "
		     "and CONFIG_TRANSPARENT_HUGEPAGE)", w->kb);
		return false;
	}
	enabled_path(path, sizeof(path), w->kb);
	if (setting_writable(path))
		return true;
	if (!size_on(w->kb)) {
		skip(w, "folios of this size are off and may not be switched on; run as root, "
		     "or set %s to madvise", path);
		return false;
	}
	for (kb = w->kb * 2; kb <= pmdsize / KB; kb *= 2) {
		if (size_on(kb)) {
			skip(w, "%u KiB folios are on too and would be taken instead; run as "
			     "root, or set their size's \"enabled\" to never", kb);
			return false;
		}
	}
	return true;
}

static unsigned int have;	/* the one size that is on; 0: unknown */

/**
 * sizes_add - let new memory come in folios of another size too
 * @kb: the size
 *
 * Until the next sizes_set(). Kernels that lack the size, and programs without
 * the permission, go on as they are.
 */
void sizes_add(unsigned int kb)
{
	char path[128];

	enabled_path(path, sizeof(path), kb);
	if (is_root() && have != kb && has_size(kb) && setting_set(path, "madvise"))
		have = 0;
}

/**
 * sizes_set - let memory of this program come in folios of one size only
 * @kb: the size; a page's size turns all larger ones off
 *
 * Sizes are set to "madvise", not "always": other programs on the machine are
 * left alone. Return: false when the settings could not be made; a program
 * without the permission has nothing to set, that is fine.
 */
bool sizes_set(unsigned int kb)
{
	unsigned int k;
	char path[128];
	bool ok = true;

	if (!is_root() || have == kb)
		return true;
	have = 0;
	if (legacy((unsigned int)(pmdsize / KB))) {
		ok = setting_set(THP_DIR "/enabled", kb > page_kb() ? "madvise" : "never");
	} else {
		for (k = 2 * page_kb(); k <= pmdsize / KB; k *= 2) {
			if (!has_size(k))
				continue;
			enabled_path(path, sizeof(path), k);
			if (!setting_set(path, k == kb ? "madvise" : "never"))
				ok = false;
		}
	}
	/*
	 * khugepaged starts and stops with these switches: let it look around
	 * and fall asleep before there is memory that it could collapse.
	 */
	usleep(20000);
	if (ok)
		have = kb;
	return ok;
}

/* ---- regions --------------------------------------------------------------- */

/**
 * memory_for - scale a size to what the machine has
 * @wanted: bytes, for the full run with the default --memory
 * @copies: how many times the memory may exist at once
 *
 * Return: bytes, a multiple of the PMD's reach; at most half of what is
 * available is used in all.
 */
size_t memory_for(size_t wanted, unsigned int copies)
{
	size_t len = (size_t)((double)wanted * (double)opt.memory / (double)(256 * MB));
	size_t avail = 0, limit;
	char line[128];
	FILE *f = fopen("/proc/meminfo", "r");

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "MemAvailable: %zu", &avail) == 1)
			break;
	if (f)
		fclose(f);
	limit = avail ? avail * KB / 10 * 7 / copies : len;
	if (len > limit) {
		progress_done();
		fprintf(stderr, "folio-measure: %zu MiB available, so %zu MiB instead of %zu\n",
			avail / KB, limit / pmdsize * pmdsize / MB, len / MB);
		len = limit;
	}
	len = len / pmdsize * pmdsize;
	return len ? len : pmdsize;
}

/**
 * scratch - memory for the program's own notes
 *
 * Touched, and never copied by fork: writing to it faults at no time.
 * Return: memory of at least @len bytes; freed by munmap(). Ends the program
 * when there is none.
 */
void *scratch(size_t len)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED) {
		fprintf(stderr, "folio-measure: no memory for %zu KiB\n", len / KB);
		exit(1);
	}
	madvise(p, len, MADV_NOHUGEPAGE);
	madvise(p, len, MADV_DONTFORK);
	memset(p, 0, len);
	return p;
}

/**
 * region_reserve - address space for a region, nothing touched yet
 *
 * Sizes are set as the case wants them. Return: false after a failure was
 * filed.
 */
bool region_reserve(struct region *r, const struct where *w)
{
	memset(r, 0, sizeof(*r));
	r->kb = w->kb;
	r->len = w->bytes;
	r->pages = r->len / pgsize;
	if (!sizes_set(w->kb)) {
		fail(w, "cannot set the sizes in " THP_DIR "/hugepages-*kB/enabled");
		return false;
	}
	r->maplen = r->len + 2 * pmdsize;
	/*
	 * Below all else in the address space (the program is linked to be
	 * placed high): how long a fault looks for its VMA depends on where in
	 * the tree it is, up to 3 % of a fault that only makes a PTE writable.
	 */
	r->map = mmap((void *)LOW, r->maplen, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
	if (r->map == MAP_FAILED)
		r->map = mmap(NULL, r->maplen, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (r->map == MAP_FAILED) {
		fail(w, "mmap of %zu MiB: %s", r->maplen / MB, strerror(errno));
		return false;
	}
	/*
	 * The gaps on both sides are given back, so that no neighbour of the
	 * same kind merges with the region or is faulted in with it.
	 */
	r->base = (char *)(((uintptr_t)r->map + 2 * pmdsize - 1) / pmdsize * pmdsize);
	mprotect(r->map, (size_t)(r->base - r->map), PROT_NONE);
	mprotect(r->base + r->len, r->maplen - r->len - (size_t)(r->base - r->map), PROT_NONE);
	if (w->kb > page_kb())
		madvise(r->base, r->len, MADV_HUGEPAGE);
	else if (!is_root())
		madvise(r->base, r->len, MADV_NOHUGEPAGE);
	return true;
}

/*
 * Have PMD-mapped folios mapped by PTEs: a change of protection of one page
 * splits the PMD, not the folio, and changing it back merges the VMAs again.
 */
static bool map_by_ptes(const struct region *r)
{
	size_t off;

	for (off = 0; off < r->len; off += pmdsize)
		if (mprotect(r->base + off, pgsize, PROT_READ) ||
		    mprotect(r->base + off, pgsize, PROT_READ | PROT_WRITE))
			return false;
	return true;
}

static bool anon_fault_allocs(unsigned int kb, unsigned long *n)
{
	char path[128], val[64];

	snprintf(path, sizeof(path), THP_DIR "/hugepages-%ukB/stats/anon_fault_alloc", kb);
	if (!setting_get(path, val, sizeof(val)))
		return false;
	*n = strtoul(val, NULL, 10);
	return true;
}

/**
 * region_alloc - memory in folios of the case's size, verified
 * @r: gets the region
 * @w: the case: size of the folios and of the memory
 * @how: how a folio as large as a PMD's reach is to be mapped
 *
 * Every page holds its number in its first bytes. Return: false after a
 * failure was filed.
 */
bool region_alloc(struct region *r, const struct where *w, enum mapping how)
{
	unsigned long before = 0, after = 0;
	size_t i, huge;
	bool counted;

	if (!region_reserve(r, w))
		return false;
	counted = anon_fault_allocs(w->kb, &before);
	for (i = 0; i < r->pages; i++)
		*(volatile uint32_t *)(r->base + i * pgsize) = (uint32_t)i + 1;
	open_proc();
	if (fd_kpageflags < 0 && w->kb > page_kb()) {
		/* not root: what the counters say must do */
		if (w->kb == pmdsize / KB) {
			huge = pmd_mapped_bytes(r->base, r->len);
			if (huge != r->len) {
				fail(w, "only %zu of %zu MiB came as huge pages", huge / MB,
				     r->len / MB);
				goto bad;
			}
		} else if (!counted || !anon_fault_allocs(w->kb, &after) ||
			   after - before < r->len / (w->kb * KB)) {
			fail(w, "only %lu of %zu folios were allocated in this size",
			     after - before, r->len / (w->kb * KB));
			goto bad;
		}
	}
	if (how == MAP_BY_PTES && w->kb == pmdsize / KB && !map_by_ptes(r)) {
		fail(w, "mprotect: %s", strerror(errno));
		goto bad;
	}
	if (region_check(r, w, how))
		return true;
bad:
	region_free(r);
	return false;
}

/**
 * region_free - unmap a region, or what is left of it
 */
void region_free(struct region *r)
{
	if (r->map)
		munmap(r->map, r->maplen);
	r->map = NULL;
}

/**
 * pmd_mapped_bytes - how much of a range is mapped by PMDs
 *
 * PAGEMAP_SCAN where it exists, otherwise AnonHugePages, FilePmdMapped and
 * ShmemPmdMapped of the mappings in the range.
 */
size_t pmd_mapped_bytes(const void *base, size_t len)
{
	uintptr_t from = (uintptr_t)base, to = from + len;
	struct scan_region vec[64];
	struct scan_arg arg = {
		.size = sizeof(arg), .start = from, .end = to,
		.vec = (uintptr_t)vec, .vec_len = ARRAY_SIZE(vec),
		.category_mask = SCAN_IS_HUGE, .return_mask = SCAN_IS_HUGE,
	};
	unsigned long a, b, kb, kb2, kb3;
	size_t bytes = 0;
	bool inside = false;
	char line[512];
	FILE *f;
	int n, i;

	for (;;) {
		n = ioctl(own_pagemap(), SCAN_IOCTL, &arg);
		if (n < 0)
			break;
		for (i = 0; i < n; i++)
			bytes += vec[i].end - vec[i].start;
		if (arg.walk_end >= to || arg.walk_end <= arg.start)
			return bytes;
		arg.start = arg.walk_end;
	}
	bytes = 0;
	f = fopen("/proc/self/smaps", "r");
	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx ", &a, &b) == 2)
			inside = a < to && b > from;
		else if (inside && sscanf(line, "AnonHugePages: %lu", &kb) == 1)
			bytes += kb * KB;
		else if (inside && sscanf(line, "ShmemPmdMapped: %lu", &kb2) == 1)
			bytes += kb2 * KB;
		else if (inside && sscanf(line, "FilePmdMapped: %lu", &kb3) == 1)
			bytes += kb3 * KB;
	}
	if (f)
		fclose(f);
	return bytes;
}

/**
 * region_check - is the region what the case says?
 *
 * Return: false after a failure was filed, with what was found instead.
 */
bool region_check(const struct region *r, const struct where *w, enum mapping how)
{
	size_t per = w->kb * KB / pgsize, i, kb, huge;
	struct snapshot s;
	bool ok = false;

	if (how == MAP_BY_PTES) {
		huge = pmd_mapped_bytes(r->base, r->len);
		if (huge) {
			fail(w, "%zu MiB of the memory is still mapped by PMDs", huge / MB);
			return false;
		}
	}
	if (!snapshot_take(&s, r->base, r->len)) {
		fail(w, "cannot read /proc/self/pagemap: %s", strerror(errno));
		return false;
	}
	for (i = 0; i < r->pages; i++) {
		if (!(s.pme[i] & PM_PRESENT)) {
			fail(w, "page %zu is not present", i);
			goto out;
		}
		if (!s.pfns)
			continue;
		if (i % per && PM_PFN(s.pme[i]) != PM_PFN(s.pme[i - 1]) + 1) {
			fail(w, "page %zu does not follow page %zu in memory: no folio of "
			     "%u KiB there", i, i - 1, w->kb);
			goto out;
		}
		if (i % per)
			continue;
		kb = snapshot_folio_kb(&s, i);
		if (kb != w->kb || (per > 1 && PM_PFN(s.pme[i]) % per)) {
			fail(w, "page %zu lies in a folio of %zu KiB, not of %u KiB", i, kb,
			     w->kb);
			goto out;
		}
	}
	ok = true;
out:
	snapshot_free(&s);
	return ok;
}

/* ---- what the page tables say ------------------------------------------- */

/*
 * kpageflags of the blocks of memory seen so far. A folio is aligned to its
 * size, so one never reaches beyond such a block. Forgotten at each snapshot.
 */
#define CACHE_SLOTS	512

static uint64_t cache_tag[CACHE_SLOTS];

static const uint64_t *block_flags(uint64_t pfn)
{
	size_t per = pmdsize / pgsize;
	uint64_t block = pfn / per;
	size_t slot = block % CACHE_SLOTS;
	uint64_t *flags;

	if (!cache_flags)
		cache_flags = scratch(CACHE_SLOTS * per * sizeof(uint64_t));
	flags = cache_flags + slot * per;
	if (cache_tag[slot] != block + 1) {
		memset(flags, 0, per * sizeof(uint64_t));
		if (pread(fd_kpageflags, flags, per * sizeof(uint64_t),
			  (off_t)(block * per * sizeof(uint64_t))) <= 0)
			return NULL;
		cache_tag[slot] = block + 1;
	}
	return flags;
}

/**
 * snapshot_of - read the pagemap of a range of any process
 * @s: gets the snapshot
 * @pagemap: the open /proc/PID/pagemap
 * @base: where the range begins in that process
 * @len: bytes
 *
 * Return: false when it cannot be read. @s->pfns says whether PFNs are in it
 * (CAP_SYS_ADMIN) and folio sizes can be asked for.
 */
bool snapshot_of(struct snapshot *s, int pagemap, const void *base, size_t len)
{
	size_t want, off = 0, i;
	ssize_t n;

	open_proc();
	memset(cache_tag, 0, sizeof(cache_tag));
	s->pages = len / pgsize;
	want = s->pages * sizeof(uint64_t);
	s->pme = scratch(want);
	s->pfns = false;
	while (off < want) {
		n = pread(pagemap, (char *)s->pme + off, want - off,
			  (off_t)((uintptr_t)base / pgsize * sizeof(uint64_t) + off));
		if (n <= 0) {
			snapshot_free(s);
			return false;
		}
		off += (size_t)n;
	}
	for (i = 0; i < s->pages && !s->pfns; i++)
		s->pfns = (s->pme[i] & PM_PRESENT) && PM_PFN(s->pme[i]);
	if (fd_kpageflags < 0)
		s->pfns = false;
	return true;
}

/**
 * snapshot_take - read the pagemap of a range of this process; see snapshot_of()
 */
bool snapshot_take(struct snapshot *s, const void *base, size_t len)
{
	return snapshot_of(s, own_pagemap(), base, len);
}

/**
 * snapshot_free - give a snapshot's memory back
 */
void snapshot_free(struct snapshot *s)
{
	if (s->pme)
		munmap(s->pme, s->pages * sizeof(uint64_t));
	s->pme = NULL;
}

/**
 * snapshot_folio_kb - size in KiB of the folio that a page lies in
 *
 * Return: 0 when the page is not present or sizes cannot be read.
 */
size_t snapshot_folio_kb(const struct snapshot *s, size_t page)
{
	uint64_t pfn = PM_PFN(s->pme[page]);
	size_t per = pmdsize / pgsize, at, from, to;
	const uint64_t *f;

	if (!s->pfns || !(s->pme[page] & PM_PRESENT))
		return 0;
	f = block_flags(pfn);
	if (!f)
		return 0;
	at = pfn % per;
	if (!(f[at] & (KPF_COMPOUND_HEAD | KPF_COMPOUND_TAIL)))
		return pgsize / KB;
	for (from = at; from && (f[from] & KPF_COMPOUND_TAIL); from--)
		;
	for (to = at + 1; to < per && (f[to] & KPF_COMPOUND_TAIL); to++)
		;
	return (to - from) * pgsize / KB;
}

/**
 * large_share - share of memory that lies in folios of 64 KiB and more
 * @s: the snapshot
 * @written: counts only pages whose byte here is set; NULL: all present ones
 *
 * Return: 0 to 1, or -1 when folio sizes cannot be read.
 */
double large_share(const struct snapshot *s, const uint8_t *written)
{
	size_t i, all = 0, large = 0, kb = 0;
	uint64_t first = 0, end = 0, pfn;

	if (!s->pfns)
		return -1;
	for (i = 0; i < s->pages; i++) {
		if (!(s->pme[i] & PM_PRESENT) || (written && !written[i]))
			continue;
		pfn = PM_PFN(s->pme[i]);
		if (pfn < first || pfn >= end) {
			kb = snapshot_folio_kb(s, i);
			first = pfn - pfn % (kb * KB / pgsize ? kb * KB / pgsize : 1);
			end = first + kb * KB / pgsize;
		}
		all++;
		large += kb >= 64;
	}
	return all ? (double)large / (double)all : 0;
}

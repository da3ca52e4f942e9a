// SPDX-License-Identifier: GPL-2.0
/*
 * mincore(): what it says about anonymous memory, swap, markers and files, on
 * random layouts from a seed, is the same with the switch mincore_batch on and
 * off, and is what a model says where the truth is known; and any part of a
 * range is told what the whole range was told.
 *
 * mincore [SEED]
 */
#include "common.h"

#include <linux/falloc.h>
#include <linux/memfd.h>
#include <linux/userfaultfd.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

#ifndef UFFD_FEATURE_WP_UNPOPULATED
#define UFFD_FEATURE_WP_UNPOPULATED	(1 << 13)
#endif
#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY		1
#endif

#define PAGES	2560			/* 10 MiB: five page tables */
#define BYTES	(PAGES * PAGE)
#define ANY	2			/* in the model: either is right */

static const char *const sizes[] = {
	"4", "16", "32", "64", "128", "256", "512", "1024", "2048",
};

static bool knob;
static unsigned int seed = 1;
static uint64_t rnd_state;

static void rnd_seed(unsigned int s)
{
	rnd_state = s * 0x9e3779b97f4a7c15ULL + 1;
}

static unsigned int rnd(unsigned int below)
{
	rnd_state ^= rnd_state << 13;
	rnd_state ^= rnd_state >> 7;
	rnd_state ^= rnd_state << 17;
	return (rnd_state >> 11) % below;
}

static void set_batch(int on)
{
	if (knob)
		knob_set("mincore_batch", on ? "1" : "0");
}

/* Anonymous memory in folios of one size, "4" for none larger. */
static void set_size(const char *kb)
{
	char path[128];

	for (unsigned int i = 1; i < ARRAY_SIZE(sizes); i++) {
		snprintf(path, sizeof(path), THP_DIR "hugepages-%skB/enabled", sizes[i]);
		file_write(path, strcmp(sizes[i], kb) ? "never" : "always");
	}
}

/* --- ask and compare ----------------------------------------------------- */

/* Ask for [addr, addr + pages); nothing may be written beyond the answer. */
static int ask(const char *addr, size_t pages, unsigned char *vec)
{
	vec[pages] = 0xa5;
	memset(vec, 0x5a, pages);
	if (mincore((void *)addr, pages * PAGE, vec)) {
		ksft_print_msg("mincore: %s\n", strerror(errno));
		return -1;
	}
	if (vec[pages] != 0xa5) {
		ksft_print_msg("mincore wrote beyond %zu bytes\n", pages);
		return -1;
	}
	return 0;
}

static int differ(const char *what, const unsigned char *a, const unsigned char *b,
		  size_t pages, size_t at)
{
	for (size_t i = 0; i < pages; i++) {
		if (a[i] != ANY && a[i] != b[i]) {
			ksft_print_msg("%s: page %zu is %u, expected %u (seed %u)\n",
				       what, at + i, b[i], a[i], seed);
			return -1;
		}
	}
	return 0;
}

/*
 * @model may be NULL, or have ANY in it. With the switch off and on, whole and
 * in parts: the answers are the same, and what the model says.
 */
static int check(const char *what, const char *addr, size_t pages,
		 const unsigned char *model)
{
	static unsigned char off[PAGES + 1], on[PAGES + 1], part[PAGES + 1];

	set_batch(0);
	if (ask(addr, pages, off))
		return -1;
	if (model && differ(what, model, off, pages, 0))
		return -1;
	set_batch(1);
	if (ask(addr, pages, on) || differ(what, off, on, pages, 0))
		return -1;
	for (int i = 0; i < 40; i++) {
		size_t from = rnd(pages);
		size_t nr = 1 + rnd(i & 1 ? pages - from : pages - from > 20 ? 20 : pages - from);

		if (ask(addr + from * PAGE, nr, part) ||
		    differ(what, on + from, part, nr, from))
			return -1;
	}
	return 0;
}

/* --- a range and what is true of its pages -------------------------------- */

struct area {
	char *mem;
	unsigned char model[PAGES];
};

static void model_set(struct area *a, size_t from, size_t nr, int val)
{
	memset(a->model + from, val, nr);
}

/* A random part: often a few pages, sometimes many; often at round borders. */
static void some(size_t *from, size_t *nr)
{
	static const unsigned int longest[] = { 1, 3, 16, 64, 600 };

	*from = rnd(PAGES);
	if (rnd(3) == 0)
		*from &= ~(rnd(2) ? 15UL : 511UL);
	*nr = 1 + rnd(longest[rnd(ARRAY_SIZE(longest))]);
	if (*nr > PAGES - *from)
		*nr = PAGES - *from;
}

/* --- anonymous memory ------------------------------------------------------ */

static void touch(struct area *a, size_t from, size_t nr)
{
	for (size_t i = from; i < from + nr; i++)
		*(volatile uint64_t *)(a->mem + i * PAGE) = i + 1;
}

/* One read for all: pm_entry() for each of them takes most of the time. */
static void read_pagemap(const struct area *a, uint64_t *pm)
{
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);

	memset(pm, 0, PAGES * sizeof(*pm));
	if (pread(fd, pm, PAGES * sizeof(*pm), (uintptr_t)a->mem / PAGE * sizeof(*pm)) < 0)
		ksft_print_msg("pagemap: %s\n", strerror(errno));
	close(fd);
}

/*
 * With large folios a touched page brings its neighbours: what is there is what
 * pagemap says, and only pages without anything are known to be absent.
 */
static void model_anon(struct area *a)
{
	uint64_t pm[PAGES];

	read_pagemap(a, pm);
	for (size_t i = 0; i < PAGES; i++)
		a->model[i] = pm[i] & PM_PRESENT ? 1 : pm[i] & PM_SWAP ? ANY : 0;
}

/* Nothing is swapped out: what is present is resident, beside what else is. */
static void model_present(struct area *a)
{
	uint64_t pm[PAGES];

	read_pagemap(a, pm);
	for (size_t i = 0; i < PAGES; i++)
		if (pm[i] & PM_PRESENT)
			a->model[i] = 1;
}

/* What programs do to memory, at random. */
static int anon_ops(struct area *a, int uffd, unsigned int ops, bool swap)
{
	for (unsigned int n = 0; n < ops; n++) {
		size_t from, nr;
		char *at;

		some(&from, &nr);
		at = a->mem + from * PAGE;
		switch (rnd(8)) {
		case 0:
			mprotect(at, nr * PAGE, PROT_NONE);
			break;
		case 1:
		case 2:
			madvise(at, nr * PAGE, MADV_DONTNEED);
			break;
		case 3:
			if (swap)
				madvise(at, nr * PAGE, MADV_PAGEOUT);
			break;
		case 4:
			if (uffd >= 0) {
				struct uffdio_writeprotect wp = {
					.range = { (unsigned long)at, nr * PAGE },
					.mode = UFFDIO_WRITEPROTECT_MODE_WP,
				};

				ioctl(uffd, UFFDIO_WRITEPROTECT, &wp);
				break;
			}
			__attribute__((fallthrough));
		default:
			mprotect(at, nr * PAGE, PROT_READ | PROT_WRITE);
			if (uffd >= 0) {
				struct uffdio_writeprotect wp = {
					.range = { (unsigned long)at, nr * PAGE },
				};

				ioctl(uffd, UFFDIO_WRITEPROTECT, &wp);
			}
			touch(a, from, nr);
		}
	}
	return 0;
}

static int map_area(struct area *a, int prot, int flags, int fd, off_t off)
{
	memset(a, 0, sizeof(*a));
	a->mem = reserve(BYTES);
	if (!a->mem)
		return -1;
	return mmap(a->mem, BYTES, prot, flags | MAP_FIXED, fd, off) == a->mem ? 0 : -1;
}

static int map_anon(struct area *a)
{
	return map_area(a, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static int anon_random(const struct layout *l, const char *mode)
{
	struct area a;

	for (unsigned int k = 0; k < ARRAY_SIZE(sizes); k++) {
		set_size(sizes[k]);
		for (int round = 0; round < 4; round++) {
			if (map_anon(&a))
				return KSFT_FAIL;
			for (int step = 0; step < 4; step++) {
				anon_ops(&a, -1, 1 + rnd(25), false);
				model_anon(&a);
				if (check(sizes[k], a.mem, PAGES, a.model))
					return KSFT_FAIL;
			}
			munmap(a.mem, BYTES);
		}
	}
	return KSFT_PASS;
}

/* Without large folios everything is known without asking pagemap. */
static int anon_known(const struct layout *l, const char *mode)
{
	struct area a;

	set_size("4");
	for (int round = 0; round < 20; round++) {
		if (map_anon(&a))
			return KSFT_FAIL;
		for (int n = 0; n < 20; n++) {
			size_t from, nr;

			some(&from, &nr);
			if (rnd(3)) {
				touch(&a, from, nr);
				model_set(&a, from, nr, 1);
			} else {
				madvise(a.mem + from * PAGE, nr * PAGE, MADV_DONTNEED);
				model_set(&a, from, nr, 0);
			}
		}
		if (check("known", a.mem, PAGES, a.model))
			return KSFT_FAIL;
		munmap(a.mem, BYTES);
	}
	return KSFT_PASS;
}

/* Runs of every length, at every distance from the border of a group. */
static int anon_runs(const struct layout *l, const char *mode)
{
	struct area a;

	set_size("4");
	if (map_anon(&a))
		return KSFT_FAIL;
	for (size_t len = 1; len < 40; len++) {
		madvise(a.mem, BYTES, MADV_DONTNEED);
		model_set(&a, 0, PAGES, 0);
		for (size_t i = len % 7; i + len < PAGES; i += 2 * len + len % 3) {
			touch(&a, i, len);
			model_set(&a, i, len, 1);
		}
		if (check("runs", a.mem, PAGES, a.model))
			return KSFT_FAIL;
		/* the same, each run with one page missing in it */
		for (size_t i = len % 7; i + len < PAGES; i += 2 * len + len % 3) {
			madvise(a.mem + (i + len / 2) * PAGE, PAGE, MADV_DONTNEED);
			a.model[i + len / 2] = 0;
		}
		if (check("runs with a gap", a.mem, PAGES, a.model))
			return KSFT_FAIL;
	}
	return KSFT_PASS;
}

static int anon_none(const struct layout *l, const char *mode)
{
	struct area a;

	if (map_anon(&a) || check("untouched", a.mem, PAGES, a.model))
		return KSFT_FAIL;
	return KSFT_PASS;
}

static int anon_protnone(const struct layout *l, const char *mode)
{
	struct area a;

	set_size("64");
	if (map_anon(&a))
		return KSFT_FAIL;
	touch(&a, 0, PAGES / 2);
	model_anon(&a);
	mprotect(a.mem, BYTES, PROT_NONE);
	for (size_t i = 0; i < PAGES / 2; i++) {
		if (a.model[i] != 1)
			return skip("touched pages are not present");
	}
	return check("PROT_NONE", a.mem, PAGES, a.model) ? KSFT_FAIL : KSFT_PASS;
}

static int anon_moved(const struct layout *l, const char *mode)
{
	struct area a;
	char *to;

	set_size("64");
	for (int round = 0; round < 4; round++) {
		if (map_anon(&a))
			return KSFT_FAIL;
		touch(&a, 0, PAGES);
		to = reserve(BYTES + 16 * PAGE);
		/* an odd number of pages off, so folios straddle page tables */
		to = move(a.mem, BYTES, to + (1 + 2 * rnd(7)) * PAGE);
		FAIL_IF(!to, "mremap: %s", strerror(errno));
		a.mem = to;
		anon_ops(&a, -1, 6, false);
		model_anon(&a);
		if (check("moved", a.mem, PAGES, a.model))
			return KSFT_FAIL;
		munmap(a.mem, BYTES);
	}
	return KSFT_PASS;
}

static int guards(const struct layout *l, const char *mode)
{
	struct area a;

	for (int k = 0; k < 4; k += 3) {
		set_size(sizes[k]);
		if (map_anon(&a))
			return KSFT_FAIL;
		touch(&a, 0, PAGES);
		model_set(&a, 0, PAGES, 1);
		for (int n = 0; n < 30; n++) {
			size_t from, nr;

			some(&from, &nr);
			if (madvise(a.mem + from * PAGE, nr * PAGE, MADV_GUARD_INSTALL))
				return skip("no MADV_GUARD_INSTALL");
			model_set(&a, from, nr, 0);
		}
		if (check("guards", a.mem, PAGES, a.model))
			return KSFT_FAIL;
		munmap(a.mem, BYTES);
	}
	return KSFT_PASS;
}

/* --- userfaultfd write-protect --------------------------------------------- */

static int uffd_open(void *mem, size_t bytes)
{
	struct uffdio_api api = {
		.api = UFFD_API,
		.features = UFFD_FEATURE_PAGEFAULT_FLAG_WP |
			    UFFD_FEATURE_WP_HUGETLBFS_SHMEM |
			    UFFD_FEATURE_WP_UNPOPULATED,
	};
	struct uffdio_register reg = {
		.range = { (unsigned long)mem, bytes },
		.mode = UFFDIO_REGISTER_MODE_WP,
	};
	int fd = syscall(__NR_userfaultfd, O_CLOEXEC | O_NONBLOCK);

	if (fd < 0)
		return -1;
	if (ioctl(fd, UFFDIO_API, &api) || ioctl(fd, UFFDIO_REGISTER, &reg)) {
		close(fd);
		return -1;
	}
	return fd;
}

static int uffd_anon(const struct layout *l, const char *mode)
{
	struct area a;
	int uffd;

	for (int k = 0; k < 4; k += 3) {
		set_size(sizes[k]);
		if (map_anon(&a))
			return KSFT_FAIL;
		uffd = uffd_open(a.mem, BYTES);
		if (uffd < 0)
			return skip("no userfaultfd write-protect");
		/* write-protecting what is not there leaves markers */
		for (int step = 0; step < 6; step++) {
			anon_ops(&a, uffd, 6, false);
			/* which look like swap in pagemap; nothing is there */
			model_set(&a, 0, PAGES, 0);
			model_present(&a);
			if (check("uffd-wp", a.mem, PAGES, a.model))
				return KSFT_FAIL;
		}
		close(uffd);
		munmap(a.mem, BYTES);
	}
	return KSFT_PASS;
}

/* --- swap ------------------------------------------------------------------ */

static int swapped(const struct layout *l, const char *mode)
{
	static const char *const kb[] = { "4", "16", "64", "1024" };
	size_t out = 0;
	struct area a;

	NEED(need_swap());
	for (unsigned int k = 0; k < ARRAY_SIZE(kb); k++) {
		set_size(kb[k]);
		for (int round = 0; round < 3; round++) {
			if (map_anon(&a))
				return KSFT_FAIL;
			touch(&a, 0, PAGES);
			madvise(a.mem, BYTES, MADV_PAGEOUT);
			usleep(20000);
			madvise(a.mem, BYTES, MADV_PAGEOUT);
			for (int step = 0; step < 4; step++) {
				model_anon(&a);
				for (size_t i = 0; i < PAGES; i++)
					out += a.model[i] == ANY;
				if (check("swapped", a.mem, PAGES, a.model))
					return KSFT_FAIL;
				anon_ops(&a, -1, 4, true);
				/* some come into the swap cache, unmapped */
				if (step == 1)
					madvise(a.mem + rnd(PAGES / 2) * PAGE,
						rnd(PAGES / 2) * PAGE, MADV_WILLNEED);
				usleep(20000);
			}
			munmap(a.mem, BYTES);
		}
	}
	FAIL_IF(out < PAGES, "only %zu pages were ever swapped out", out);
	return KSFT_PASS;
}

/*
 * Pages that are in swap and not in its cache are not resident; pages of which
 * another process has a copy mapped are in the cache, and are.
 */
static int swap_cache(const struct layout *l, const char *mode)
{
	unsigned char vec[PAGES + 1];
	size_t in = 0, out = 0;
	struct area a;

	NEED(need_swap());
	set_size("4");
	if (map_anon(&a))
		return KSFT_FAIL;
	touch(&a, 0, PAGES);
	madvise(a.mem, BYTES, MADV_PAGEOUT);
	usleep(50000);
	madvise(a.mem, BYTES, MADV_PAGEOUT);
	if (check("all out", a.mem, PAGES, NULL))
		return KSFT_FAIL;
	/* every third page into the cache */
	for (size_t i = 0; i < PAGES; i += 3)
		madvise(a.mem + i * PAGE, PAGE, MADV_WILLNEED);
	usleep(50000);
	if (check("a third cached", a.mem, PAGES, NULL) || ask(a.mem, PAGES, vec))
		return KSFT_FAIL;
	for (size_t i = 0; i < PAGES; i++) {
		if (pm_entry(a.mem + i * PAGE) & PM_PRESENT)
			continue;
		in += vec[i];
		out += !vec[i];
	}
	FAIL_IF(!out, "nothing is swapped out and not cached");
	FAIL_IF(in < PAGES / 4, "of %d pages only %zu came into the swap cache",
		PAGES / 3, in);
	return KSFT_PASS;
}

/* --- files ----------------------------------------------------------------- */

/* A tmpfs of our own; a file on it, its directory already gone. -1: cannot. */
static int tmpfs_file(const char *opts)
{
	char dir[] = "/tmp/mincore.XXXXXX", path[64];
	int fd = -1;

	if (!mkdtemp(dir))
		return -1;
	if (!mount("mincore", dir, "tmpfs", 0, opts)) {
		snprintf(path, sizeof(path), "%s/f", dir);
		fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		if (fd >= 0)
			unlink(path);
		umount2(dir, MNT_DETACH);
	}
	rmdir(dir);
	return fd;
}

/*
 * What of a tmpfs file is there, as SEEK_DATA and SEEK_HOLE see it: they walk
 * the folios in the page cache and what is swapped out (@swap: cached or not).
 */
static int model_file(struct area *a, int fd, off_t off, bool swap)
{
	off_t end = off + BYTES, at = off;
	struct stat st;

	memset(a->model, 0, PAGES);
	if (fstat(fd, &st))
		return -1;
	while (at < end) {
		off_t data = lseek(fd, at, SEEK_DATA), hole;

		if (data < 0 || data >= end)
			break;
		hole = lseek(fd, data, SEEK_HOLE);
		if (hole < 0)
			return -1;
		/* the last page of a file may be a part of one */
		hole = (hole + PAGE - 1) & ~(PAGE - 1);
		if (hole > end)
			hole = end;
		memset(a->model + (data - off) / PAGE, swap ? ANY : 1,
		       (hole - data) / PAGE);
		at = hole;
	}
	return 0;
}

/* Pages beyond the end may be in the cache where a huge folio straddles it. */
static void model_beyond(struct area *a, int fd, off_t off)
{
	struct stat st;

	if (fstat(fd, &st) || st.st_size >= off + (off_t)BYTES)
		return;
	for (off_t i = st.st_size < off ? 0 : (st.st_size - off + PAGE - 1) / PAGE; i < PAGES; i++)
		a->model[i] = ANY;
}

static void file_ops(struct area *a, int fd, off_t off, unsigned int ops, bool swap)
{
	static char buf[64 * PAGE];

	for (unsigned int n = 0; n < ops; n++) {
		size_t from, nr;
		off_t at;

		some(&from, &nr);
		at = off + from * PAGE;
		switch (rnd(swap ? 7 : 6)) {
		case 0:
			fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, nr * PAGE);
			break;
		case 1:
			if (rnd(4) == 0) {
				if (ftruncate(fd, at) || ftruncate(fd, off + BYTES))
					break;
			}
			break;
		case 2:
			madvise(a->mem + from * PAGE, nr * PAGE, MADV_DONTNEED);
			break;
		case 3:
			/* read: maps what is there, and fills holes of a shared file */
			if (nr > 8)
				nr = 8;
			for (size_t i = from; i < from + nr; i++)
				(void)*(volatile char *)(a->mem + i * PAGE);
			break;
		case 6:
			/* only what is mapped is paged out */
			for (size_t i = from; i < from + nr; i++)
				(void)*(volatile char *)(a->mem + i * PAGE);
			madvise(a->mem + from * PAGE, nr * PAGE, MADV_PAGEOUT);
			break;
		default:
			if (nr > 64)
				nr = 64;
			if (pwrite(fd, buf, nr * PAGE, at) < 0)
				return;
		}
	}
}

static int file_random(const char *opts, bool swap)
{
	static unsigned char vec[PAGES + 1];
	size_t out = 0;
	struct area a;
	off_t off;
	int fd;

	for (int round = 0; round < 12; round++) {
		fd = tmpfs_file(opts);
		if (fd < 0)
			return skip("no tmpfs with %s", opts);
		/* mostly where a folio begins in the middle of the mapping */
		off = (round & 1) * rnd(1000) * PAGE + (round > 8) * (1UL << 40);
		SYS(ftruncate(fd, off + BYTES));
		FAIL_IF(map_area(&a, PROT_READ | PROT_WRITE, MAP_SHARED, fd, off), "mmap");
		for (int step = 0; step < 6; step++) {
			file_ops(&a, fd, off, 1 + rnd(20), swap);
			FAIL_IF(model_file(&a, fd, off, swap), "lseek");
			model_beyond(&a, fd, off);
			if (check(opts, a.mem, PAGES, a.model) || ask(a.mem, PAGES, vec))
				return KSFT_FAIL;
			for (size_t i = 0; i < PAGES; i++)
				out += a.model[i] == ANY && !vec[i];
			/* the same file, seen where nothing is mapped */
			FAIL_IF(mmap(a.mem, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
				     fd, off) != a.mem, "mmap");
			if (check("unmapped", a.mem, PAGES, a.model))
				return KSFT_FAIL;
		}
		munmap(a.mem, BYTES);
		close(fd);
	}
	FAIL_IF(swap && !out, "nothing was ever swapped out");
	return KSFT_PASS;
}

static int file_small(const struct layout *l, const char *mode)
{
	return file_random("huge=never", false);
}

static int file_huge(const struct layout *l, const char *mode)
{
	return file_random("huge=always", false);
}

static int file_within(const struct layout *l, const char *mode)
{
	return file_random("huge=within_size", false);
}

static int shmem_swapped(const struct layout *l, const char *mode)
{
	NEED(need_swap());
	return file_random("huge=never", true);
}

static int shmem_swapped_huge(const struct layout *l, const char *mode)
{
	NEED(need_swap());
	return file_random("huge=always", true);
}

/* A private mapping: pages of its own lie between pages of the file. */
static int file_private(const struct layout *l, const char *mode)
{
	struct area a;
	int fd;

	for (int round = 0; round < 10; round++) {
		const char *opts = round & 1 ? "huge=always" : "huge=never";
		off_t off = rnd(700) * PAGE;

		set_size(round & 2 ? "64" : "4");
		fd = tmpfs_file(opts);
		if (fd < 0)
			return skip("no tmpfs with %s", opts);
		SYS(ftruncate(fd, off + BYTES));
		FAIL_IF(map_area(&a, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, off), "mmap");
		file_ops(&a, fd, off, 15, false);
		for (int n = 0; n < 12; n++) {
			size_t from, nr;

			some(&from, &nr);
			if (n < 6)
				nr = 1;
			touch(&a, from, nr);
		}
		/* and every second, third ... page of one page table */
		for (size_t i = 512; i < 1024; i += 2 + round)
			touch(&a, i, 1);
		FAIL_IF(model_file(&a, fd, off, false), "lseek");
		model_present(&a);
		if (check("private", a.mem, PAGES, a.model))
			return KSFT_FAIL;
		if (!madvise(a.mem + 600 * PAGE, 100 * PAGE, MADV_GUARD_INSTALL)) {
			/* below a guard, the file is what is answered for */
			FAIL_IF(model_file(&a, fd, off, false), "lseek");
			model_present(&a);
			if (check("private, guards", a.mem, PAGES, a.model))
				return KSFT_FAIL;
		}
		munmap(a.mem, BYTES);
		close(fd);
	}
	return KSFT_PASS;
}

static int uffd_shmem(const struct layout *l, const char *mode)
{
	struct area a;
	int fd, uffd;

	fd = tmpfs_file("huge=never");
	if (fd < 0)
		return skip("no tmpfs");
	SYS(ftruncate(fd, BYTES));
	FAIL_IF(map_area(&a, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), "mmap");
	uffd = uffd_open(a.mem, BYTES);
	if (uffd < 0)
		return skip("no userfaultfd write-protect of shmem");
	for (int round = 0; round < 10; round++) {
		size_t from, nr;

		file_ops(&a, fd, 0, 6, false);
		for (int n = 0; n < 6; n++) {
			struct uffdio_writeprotect wp = {
				.mode = UFFDIO_WRITEPROTECT_MODE_WP,
			};

			some(&from, &nr);
			wp.range.start = (unsigned long)a.mem + from * PAGE;
			wp.range.len = nr * PAGE;
			SYS(ioctl(uffd, UFFDIO_WRITEPROTECT, &wp));
		}
		FAIL_IF(model_file(&a, fd, 0, false), "lseek");
		if (check("shmem, uffd-wp", a.mem, PAGES, a.model))
			return KSFT_FAIL;
	}
	close(uffd);
	return KSFT_PASS;
}

/* A file of 1 TiB with a page here and there: windows around these. */
static int file_sparse(const struct layout *l, const char *mode)
{
	static const unsigned long at[] = {
		0, 1, 63, 64, 511, 512, 4095, 4096, 262143, 262144, 1000003,
		16777216, 16777215, 200000000, (1UL << 28) - 1,
	};
	static unsigned char vec[8192 + 1];
	int fd = tmpfs_file("huge=never");
	char *mem;

	if (fd < 0)
		return skip("no tmpfs");
	SYS(ftruncate(fd, 1L << 40));
	mem = mmap(NULL, 1UL << 40, PROT_READ, MAP_SHARED | MAP_NORESERVE, fd, 0);
	FAIL_IF(mem == MAP_FAILED, "mmap: %s", strerror(errno));
	for (unsigned int i = 0; i < ARRAY_SIZE(at); i++)
		SYS(pwrite(fd, "x", 1, (off_t)at[i] * PAGE));
	for (int on = 0; on < 2; on++) {
		set_batch(on);
		for (unsigned int i = 0; i < ARRAY_SIZE(at); i++) {
			unsigned long from = at[i] < 5000 ? 0 : at[i] - 5000;
			unsigned long nr = (1UL << 28) - from < 8192 ? (1UL << 28) - from : 8192;
			size_t have = 0, want = 0;

			if (ask(mem + from * PAGE, nr, vec))
				return KSFT_FAIL;
			for (unsigned long k = 0; k < nr; k++)
				have += vec[k];
			for (unsigned int k = 0; k < ARRAY_SIZE(at); k++) {
				if (at[k] < from || at[k] >= from + nr)
					continue;
				want++;
				FAIL_IF(!vec[at[k] - from], "page %lu is not resident", at[k]);
			}
			FAIL_IF(have != want, "around page %lu: %zu resident, expected %zu",
				at[i], have, want);
		}
	}
	munmap(mem, 1UL << 40);
	close(fd);
	return KSFT_PASS;
}

/* Page cache of a hugetlb file, through a mapping without page tables. */
static int file_hugetlb(const struct layout *l, const char *mode)
{
	struct area a = { 0 };
	char *w;
	int fd;

	if (file_write("/proc/sys/vm/nr_hugepages", "8"))
		return skip("no hugetlb");
	fd = syscall(__NR_memfd_create, "mincore", MFD_HUGETLB);
	if (fd < 0)
		return skip("no hugetlb memfd");
	SYS(ftruncate(fd, BYTES));
	w = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (w == MAP_FAILED)
		return skip("no huge pages");
	w[MB2 + 5] = 1;
	w[3 * MB2 + 5] = 1;
	model_set(&a, 512, 512, 1);
	model_set(&a, 3 * 512, 512, 1);
	a.mem = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, fd, 0);
	FAIL_IF(a.mem == MAP_FAILED, "mmap");
	if (check("hugetlb, mapped", w, PAGES, NULL) ||
	    check("hugetlb, unmapped", a.mem, PAGES, NULL))
		return KSFT_FAIL;
	close(fd);
	munmap(w, BYTES);
	munmap(a.mem, BYTES);
	file_write("/proc/sys/vm/nr_hugepages", "0");
	return KSFT_PASS;
}

/* --- who may know ------------------------------------------------------------ */

/* What an unprivileged user is told of a file: 0 nothing (all ones), 1 truth. */
static int told(int fd, uid_t uid)
{
	unsigned char vec[16 + 1];
	int status, ones = 0;
	pid_t pid;

	pid = fork_child();
	if (pid < 0)
		return -1;
	if (!pid) {
		char *m = mmap(NULL, 16 * PAGE, PROT_READ, MAP_SHARED, fd, 0);

		if (m == MAP_FAILED || setgid(uid) || setuid(uid) || ask(m, 16, vec))
			_exit(9);
		for (int i = 0; i < 16; i++)
			ones += vec[i];
		_exit(ones == 16 ? 0 : ones == 1 && vec[5] ? 1 : 8);
	}
	if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
		return -1;
	return WEXITSTATUS(status);
}

static int permission(const struct layout *l, const char *mode)
{
	int fd = tmpfs_file("huge=never"), ro, got;
	char path[64];

	if (fd < 0)
		return skip("no tmpfs");
	SYS(ftruncate(fd, 16 * PAGE));
	SYS(pwrite(fd, "x", 1, 5 * PAGE));
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	ro = open(path, O_RDONLY);
	FAIL_IF(ro < 0, "open: %s", strerror(errno));
	for (int on = 0; on < 2; on++) {
		set_batch(on);
		SYS(fchown(fd, 0, 0));
		SYS(fchmod(fd, 0644));
		got = told(ro, 12345);
		FAIL_IF(got != 0, "may read only: %d", got);
		SYS(fchmod(fd, 0666));
		got = told(ro, 12345);
		FAIL_IF(got != 1, "may write: %d", got);
		SYS(fchmod(fd, 0444));
		SYS(fchown(fd, 12345, 12345));
		got = told(ro, 12345);
		FAIL_IF(got != 1, "owns it: %d", got);
		got = told(ro, 23456);
		FAIL_IF(got != 0, "owned by another: %d", got);
	}
	return KSFT_PASS;
}

static int arguments(const struct layout *l, const char *mode)
{
	char *mem = mmap(NULL, 8 * PAGE, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned char vec[16];

	FAIL_IF(mem == MAP_FAILED, "mmap");
	mem[0] = 1;
	mem[3 * PAGE] = 1;
	for (int on = 0; on < 2; on++) {
		set_batch(on);
		FAIL_IF(mincore(mem + 1, PAGE, vec) != -1 || errno != EINVAL, "unaligned");
		FAIL_IF(mincore(mem, PAGE, (void *)8) != -1 || errno != EFAULT, "bad vector");
		FAIL_IF(mincore(mem, 0, vec), "empty range");
		memset(vec, 7, sizeof(vec));
		FAIL_IF(mincore(mem, 3 * PAGE + 1, vec), "length is rounded up");
		FAIL_IF(vec[0] != 1 || vec[1] || vec[2] || vec[3] != 1 || vec[4] != 7,
			"rounded up");
		munmap(mem + 6 * PAGE, PAGE);
		FAIL_IF(mincore(mem, 8 * PAGE, vec) != -1 || errno != ENOMEM, "hole");
	}
	return KSFT_PASS;
}

/* --- at the same time ---------------------------------------------------------- */

struct race {
	char *mem;
	int fd;
	bool swap;
	volatile bool stop;
};

/* Pages 0, 64, 128 ... stay; odd ones come and go; beyond PAGES is nothing. */
static void *churn(void *arg)
{
	struct race *r = arg;
	static char buf[8 * PAGE];
	uint64_t x = seed * 77 + 1;

	while (!r->stop) {
		size_t i, nr;

		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		i = (x >> 20) % PAGES;
		nr = 1 + (x >> 50) % 63;
		if (i % 64 == 0)
			i++;
		if (i % 64 + nr > 64)
			nr = 64 - i % 64;
		if (x & 3)
			fallocate(r->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				  i * PAGE, nr * PAGE);
		else if (pwrite(r->fd, buf, (nr > 8 ? 8 : nr) * PAGE, i * PAGE) < 0)
			break;
		if ((x & 0xf00) == 0) {
			/* the end comes and goes: what is beyond it is nothing */
			if (ftruncate(r->fd, BYTES - PAGE) || ftruncate(r->fd, BYTES))
				break;
		}
		if ((x & 0xf0) == 0)
			madvise(r->mem + i * PAGE, nr * PAGE, MADV_DONTNEED);
	}
	return NULL;
}

static int race_file(const char *opts)
{
	static unsigned char vec[2 * PAGES + 1];
	struct race r = { 0 };
	struct timespec t0, t;
	unsigned long asked = 0;
	int ret = KSFT_PASS;
	pthread_t thread;

	r.fd = tmpfs_file(opts);
	if (r.fd < 0)
		return skip("no tmpfs with %s", opts);
	SYS(ftruncate(r.fd, 2 * BYTES));
	r.mem = mmap(NULL, 2 * BYTES, PROT_READ, MAP_SHARED, r.fd, 0);
	FAIL_IF(r.mem == MAP_FAILED, "mmap");
	for (size_t i = 0; i < PAGES; i += 64)
		SYS(pwrite(r.fd, "x", 1, i * PAGE));
	SYS(ftruncate(r.fd, BYTES));
	set_batch(1);
	FAIL_IF(pthread_create(&thread, NULL, churn, &r), "pthread_create");
	clock_gettime(CLOCK_MONOTONIC, &t0);
	do {
		if (ask(r.mem, 2 * PAGES, vec)) {
			ret = KSFT_FAIL;
			break;
		}
		for (size_t i = 0; i < 2 * PAGES; i++) {
			if (vec[i] > 1 || (i < PAGES - 1 && i % 64 == 0 && !vec[i]) ||
			    (i >= PAGES + 511 && vec[i])) {
				ksft_print_msg("%s: page %zu is %u, call %lu\n",
					       opts, i, vec[i], asked);
				ret = KSFT_FAIL;
				break;
			}
		}
		asked++;
		clock_gettime(CLOCK_MONOTONIC, &t);
	} while (ret == KSFT_PASS && t.tv_sec - t0.tv_sec < 4);
	r.stop = true;
	pthread_join(thread, NULL);
	munmap(r.mem, 2 * BYTES);
	close(r.fd);
	return ret;
}

static int race_small(const struct layout *l, const char *mode)
{
	return race_file("huge=never");
}

static int race_huge(const struct layout *l, const char *mode)
{
	return race_file("huge=always");
}

/* Anonymous pages: one in 16 stays, the others go and come and are swapped. */
static void *churn_anon(void *arg)
{
	struct race *r = arg;
	uint64_t x = seed * 99 + 1;

	while (!r->stop) {
		size_t i;

		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		i = (x >> 20) % PAGES;
		if (i % 16 == 0)
			continue;
		if (x & 1)
			*(volatile char *)(r->mem + i * PAGE) = 1;
		else if (r->swap && (x & 2))
			madvise(r->mem + i * PAGE, PAGE, MADV_PAGEOUT);
		else
			madvise(r->mem + i * PAGE, PAGE, MADV_DONTNEED);
	}
	return NULL;
}

static int race_anon(const struct layout *l, const char *mode)
{
	unsigned char vec[PAGES + 1];
	struct timespec t0, t;
	struct race r = { 0 };
	int ret = KSFT_PASS;
	pthread_t thread;
	struct area a;

	set_size("4");
	r.swap = need_swap() == KSFT_PASS;
	if (map_anon(&a))
		return KSFT_FAIL;
	touch(&a, 0, PAGES);
	/* what stays has to stay: not even memory pressure may take it */
	for (size_t i = 0; i < PAGES; i += 16)
		if (mlock(a.mem + i * PAGE, PAGE))
			break;
	r.mem = a.mem;
	set_batch(1);
	FAIL_IF(pthread_create(&thread, NULL, churn_anon, &r), "pthread_create");
	clock_gettime(CLOCK_MONOTONIC, &t0);
	do {
		if (ask(a.mem, PAGES, vec))
			ret = KSFT_FAIL;
		for (size_t i = 0; ret == KSFT_PASS && i < PAGES; i++) {
			if (vec[i] > 1 || (i % 16 == 0 && !vec[i])) {
				ksft_print_msg("page %zu is %u\n", i, vec[i]);
				ret = KSFT_FAIL;
			}
		}
		clock_gettime(CLOCK_MONOTONIC, &t);
	} while (ret == KSFT_PASS && t.tv_sec - t0.tv_sec < 4);
	r.stop = true;
	pthread_join(thread, NULL);
	return ret;
}

/* --- all of them ----------------------------------------------------------------- */

static const struct test_case cases[] = {
	{ "arguments: errors, rounding, an empty range", arguments, ON_SMALL },
	{ "anonymous memory never touched", anon_none, ON_SMALL },
	{ "small pages touched and dropped at random: exactly these", anon_known, ON_SMALL },
	{ "runs of every length, at every offset, with gaps", anon_runs, ON_SMALL },
	{ "folios of every size, touched, dropped, protected at random", anon_random, ON_SMALL },
	{ "PROT_NONE is resident", anon_protnone, ON_SMALL },
	{ "folios moved by an odd number of pages", anon_moved, ON_SMALL },
	{ "guard regions are not resident", guards, ON_SMALL },
	{ "userfaultfd-wp markers in anonymous memory", uffd_anon, ON_SMALL },
	{ "swapped out, read back and dropped at random", swapped, ON_SMALL },
	{ "swapped out pages are resident if they are in the swap cache", swap_cache, ON_SMALL },
	{ "tmpfs file, small folios, mapped in part", file_small, ON_SMALL },
	{ "tmpfs file, huge folios, mapped in part", file_huge, ON_SMALL },
	{ "tmpfs file, huge folios within its size", file_within, ON_SMALL },
	{ "tmpfs file, swapped out in part", shmem_swapped, ON_SMALL },
	{ "tmpfs file, huge folios swapped out in part", shmem_swapped_huge, ON_SMALL },
	{ "private mapping, its own pages between the file's", file_private, ON_SMALL },
	{ "userfaultfd-wp markers over a file", uffd_shmem, ON_SMALL },
	{ "a file of 1 TiB with a page here and there", file_sparse, ON_SMALL },
	{ "hugetlb file", file_hugetlb, ON_SMALL },
	{ "a file's pages are told to who may write it, and to its owner", permission, ON_SMALL },
	{ "file changes at the same time, small folios", race_small, ON_SMALL },
	{ "file changes at the same time, huge folios", race_huge, ON_SMALL },
	{ "anonymous memory changes at the same time", race_anon, ON_SMALL },
};

int main(int argc, char **argv)
{
	if (argc > 1)
		seed = strtoul(argv[1], NULL, 0);
	rnd_seed(seed);

	knob = have_knob("mincore_batch");
	if (!knob)
		ksft_print_msg("kernel has no %smincore_batch: cases run once, as stock\n",
			       THP_DIR);
	/* The cases turn the switch on and off by themselves. */
	run_cases(cases, ARRAY_SIZE(cases), NULL);
}

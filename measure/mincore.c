// SPDX-License-Identifier: GPL-2.0
/*
 * mincore: ask which pages are resident, and check the answer.
 *
 *   anon           anonymous memory, mapped by PTEs
 *   swapped        the same, paged out to swap
 *   file-unmapped  a file in the page cache, mapped but never touched
 *   file-mapped    the same, touched: mapped by PTEs
 *   hole           one folio in every 2 MiB (2 MiB folios: every second 2 MiB),
 *                  the rest of the anonymous memory never touched
 *   sparse         a file of 1 TiB with one page cached; per GiB asked for
 *
 * insns_per_page is one call over the whole memory, over its pages. Files are
 * on a tmpfs of our own that is mounted nowhere, so nothing is left behind.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/swap.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "measure.h"

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT	21
#endif
#ifndef FSCONFIG_SET_STRING
#define FSCONFIG_SET_STRING	1
#define FSCONFIG_CMD_CREATE	6
#endif

static const unsigned int sizes[] = { 4, 64, 2048 };

/*
 * Ask opt.repeats times; each answer must name @expect pages. Asking changes
 * nothing, so the same memory serves all repeats.
 */
static bool ask(const struct where *w, void *base, size_t len, size_t expect, struct series *s)
{
	size_t pages = len / pgsize, i, resident;
	unsigned char *vec = scratch(pages);
	uint64_t from, to;
	bool ok = true;
	unsigned int n;
	int err;

	/* once unmeasured: the first call after a fork or a mount is dearer */
	for (n = 0; ok && n <= opt.repeats; n++) {
		from = now();
		err = mincore(base, len, vec);
		to = now();
		if (err) {
			fail(w, "mincore: %s", strerror(errno));
			ok = false;
			break;
		}
		for (i = 0, resident = 0; i < pages; i++)
			resident += vec[i] & 1;
		if (resident != expect) {
			fail(w, "%zu pages resident, %zu expected", resident, expect);
			ok = false;
		}
		if (n)
			series_add(s, (double)elapsed(from, to));
	}
	munmap(vec, pages);
	return ok;
}

static void ask_and_report(const struct where *w, void *base, size_t len, size_t expect)
{
	struct series s = { 0 };

	if (ask(w, base, len, expect, &s))
		row_scaled(w, "insns_per_page", &s, (double)(len / pgsize));
}

static void anon(const struct where *w)
{
	struct region r;

	if (!region_alloc(&r, w, MAP_BY_PTES))
		return;
	ask_and_report(w, r.base, r.len, r.pages);
	region_free(&r);
}

static void hole(const struct where *w)
{
	size_t folio = w->kb * KB, step = folio < 2 * MB ? 2 * MB : 2 * folio, off, i;
	size_t touched = 0;
	struct region r;

	if (!region_reserve(&r, w))
		return;
	for (off = 0; off < r.len; off += step) {
		for (i = 0; i < folio; i += pgsize)
			*(volatile char *)(r.base + off + i) = 1;
		touched += folio / pgsize;
	}
	ask_and_report(w, r.base, r.len, touched);
	region_free(&r);
}

/* ---- swap ------------------------------------------------------------------ */

static bool swap_in_use(void)
{
	char line[256];
	unsigned int n = 0;
	FILE *f = fopen("/proc/swaps", "r");

	while (f && fgets(line, sizeof(line), f))
		n++;
	if (f)
		fclose(f);
	return n > 1;
}

static bool make_swap(const char *dev, size_t bytes)
{
	struct {
		char boot[1024];
		uint32_t version, last_page, nr_bad;
	} *head = calloc(1, pgsize);
	int fd = open(dev, O_WRONLY | O_CLOEXEC);
	bool ok = false;

	if (head && fd >= 0) {
		head->version = 1;
		head->last_page = (uint32_t)(bytes / pgsize - 1);
		memcpy((char *)head + pgsize - 10, "SWAPSPACE2", 10);
		ok = write(fd, head, pgsize) == (ssize_t)pgsize && !fsync(fd);
	}
	if (fd >= 0)
		close(fd);
	free(head);
	return ok;
}

/*
 * Swap for our own pages. Return: true when there is; *@ours says whether it
 * was set up here. Otherwise the case was filed as skipped or failed.
 */
static bool swap_start(const struct where *w, bool *ours)
{
	char val[64];

	*ours = false;
	if (swap_in_use()) {
		if (opt.allow_swap)
			return true;
		skip(w, "swap is in use on this machine and is left alone; --allow-swap lets "
		     "the program page out its own memory");
		return false;
	}
	if (!in_lab()) {
		skip(w, "no swap is on, and only in the lab's machine it is set up for this; "
		     "turn on swap and use --allow-swap");
		return false;
	}
	if (!setting_get("/sys/block/zram0/disksize", val, sizeof(val)) || strcmp(val, "0")) {
		skip(w, "no unused /dev/zram0; needs CONFIG_ZRAM");
		return false;
	}
	snprintf(val, sizeof(val), "%zu", 2 * w->bytes);
	undo_write("/sys/block/zram0/reset", "1");
	undo_swapoff("/dev/zram0");
	*ours = true;
	if (!setting_write("/sys/block/zram0/disksize", val) ||
	    !make_swap("/dev/zram0", 2 * w->bytes) || swapon("/dev/zram0", 0)) {
		fail(w, "cannot set up swap on /dev/zram0: %s", strerror(errno));
		return false;
	}
	return true;
}

static void swap_stop(bool ours)
{
	if (!ours)
		return;
	swapoff("/dev/zram0");
	setting_write("/sys/block/zram0/reset", "1");
}

static void swapped(const struct where *w)
{
	struct region r = { 0 };
	struct snapshot s;
	size_t out = 0, i;
	unsigned int n;
	bool ours;

	if (!swap_start(w, &ours)) {
		swap_stop(ours);
		return;
	}
	if (!region_alloc(&r, w, MAP_BY_PTES))
		goto stop;
	/* reclaim skips what is busy for a moment: ask again for what stayed */
	for (n = 0; n < 10 && out < r.pages; n++) {
		if (madvise(r.base, r.len, MADV_PAGEOUT)) {
			fail(w, "madvise(MADV_PAGEOUT): %s", strerror(errno));
			goto stop;
		}
		if (!snapshot_take(&s, r.base, r.len))
			break;
		for (i = 0, out = 0; i < r.pages; i++)
			out += (s.pme[i] & PM_SWAPPED) && !(s.pme[i] & PM_PRESENT);
		snapshot_free(&s);
	}
	if (out < r.pages)
		fail(w, "only %zu of %zu pages were paged out", out, r.pages);
	else
		ask_and_report(w, r.base, r.len, 0);
stop:
	region_free(&r);
	swap_stop(ours);
}

/* ---- files ------------------------------------------------------------------ */

/*
 * A file on a tmpfs of our own. The largest folios come with huge=always. With
 * huge=within_size a file that grows by a folio at each write gets folios of
 * just that size: larger ones would reach beyond its end. Without privilege a
 * memfd serves, for small folios.
 */
static int file_open(unsigned int kb)
{
	const char *huge = kb * KB == pgsize ? "never" :
			   kb * KB == pmdsize ? "always" : "within_size";
	int fs = -1, mnt = -1, fd = -1;

	if (is_root()) {
		fs = (int)syscall(SYS_fsopen, "tmpfs", 1 /* FSOPEN_CLOEXEC */);
		if (fs >= 0 &&
		    !syscall(SYS_fsconfig, fs, FSCONFIG_SET_STRING, "huge", huge, 0) &&
		    !syscall(SYS_fsconfig, fs, FSCONFIG_SET_STRING, "size", "100%", 0) &&
		    !syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0))
			mnt = (int)syscall(SYS_fsmount, fs, 1 /* FSMOUNT_CLOEXEC */, 0);
		if (mnt >= 0)
			fd = openat(mnt, "file", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		if (mnt >= 0)
			close(mnt);
		if (fs >= 0)
			close(fs);
	}
	if (fd < 0 && kb * KB == pgsize)
		fd = memfd_create("folio-measure", MFD_CLOEXEC);
	return fd;
}

/* Can page cache of this size be had? 64 KiB and the like need 6.14's tmpfs. */
static bool file_obtainable(const struct where *w)
{
	unsigned int major = 0, minor = 0;
	struct utsname u;

	if (w->kb * KB == pgsize)
		return true;
	if (!is_root()) {
		skip(w, "large folios in files need a tmpfs of our own; run as root");
		return false;
	}
	if (access(THP_DIR "/shmem_enabled", F_OK)) {
		skip(w, "no large folios in tmpfs (need CONFIG_TRANSPARENT_HUGEPAGE and "
		     "CONFIG_SHMEM)");
		return false;
	}
	/* nothing in sysfs tells */
	uname(&u);
	sscanf(u.release, "%u.%u", &major, &minor);
	if (w->kb * KB != pmdsize && (major < 6 || (major == 6 && minor < 14))) {
		skip(w, "no page cache folios of %u KiB in tmpfs (Linux 6.14 has them)", w->kb);
		return false;
	}
	return true;
}

static bool file_fill(int fd, size_t len, size_t chunk)
{
	char *buf = scratch(chunk);
	size_t off;
	bool ok = true;

	memset(buf, 0x5a, chunk);
	for (off = 0; ok && off < len; off += chunk)
		ok = pwrite(fd, buf, chunk, (off_t)off) == (ssize_t)chunk;
	munmap(buf, chunk);
	return ok;
}

/*
 * Map the file so that no PMD can map a folio: address and offset differ in
 * their lower bits.
 */
static char *file_map(const struct where *w, int fd, char **map, size_t *maplen)
{
	char *at;

	*maplen = w->bytes + 2 * pmdsize;
	*map = mmap(NULL, *maplen, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (*map == MAP_FAILED)
		return NULL;
	at = (char *)(((uintptr_t)*map + pmdsize - 1) / pmdsize * pmdsize) + 64 * KB;
	at = mmap(at, w->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
	if (at == MAP_FAILED) {
		munmap(*map, *maplen);
		return NULL;
	}
	return at;
}

static void file(const struct where *w, bool mapped)
{
	size_t maplen, i, kb, huge, chunk = w->kb * KB > 64 * KB ? w->kb * KB : 64 * KB;
	char *at, *map;
	struct snapshot s;
	bool ok = true;
	int fd;

	if (!file_obtainable(w))
		return;
	fd = file_open(w->kb);
	if (fd < 0) {
		skip(w, "no file on a tmpfs of our own: %s", strerror(errno));
		return;
	}
	if (!file_fill(fd, w->bytes, chunk)) {
		fail(w, "writing the file: %s", strerror(errno));
		close(fd);
		return;
	}
	at = file_map(w, fd, &map, &maplen);
	if (!at) {
		fail(w, "mmap: %s", strerror(errno));
		close(fd);
		return;
	}
	/* touch and verify; the unmapped case then gets a mapping untouched */
	for (i = 0; i < w->bytes; i += pgsize)
		(void)*(volatile char *)(at + i);
	huge = pmd_mapped_bytes(at, w->bytes);
	if (huge) {
		fail(w, "%zu MiB of the file are mapped by PMDs", huge / MB);
		ok = false;
	}
	if (ok && snapshot_take(&s, at, w->bytes)) {
		for (i = 0; s.pfns && ok && i < s.pages; i += w->kb * KB / pgsize) {
			kb = snapshot_folio_kb(&s, i);
			if (kb != w->kb) {
				fail(w, "page %zu lies in a folio of %zu KiB, not of %u KiB", i,
				     kb, w->kb);
				ok = false;
			}
		}
		snapshot_free(&s);
	}
	if (ok && !mapped) {
		munmap(map, maplen);
		at = file_map(w, fd, &map, &maplen);
		ok = at != NULL;
	}
	if (ok)
		ask_and_report(w, at, w->bytes, w->bytes / pgsize);
	if (at)
		munmap(map, maplen);
	close(fd);
}

static void sparse(void)
{
	struct where w = {
		.experiment = "mincore", .name = "sparse", .kb = (unsigned int)(pgsize / KB),
		.bytes = 1024 * GB,
	};
	static const size_t at[] = { 0, 512 * GB };	/* the page is in the latter */
	struct series s[2] = { { 0 } }, sum;
	char *p;
	int fd;

	progress(&w);
	fd = file_open(w.kb);
	if (fd < 0 || ftruncate(fd, (off_t)w.bytes) ||
	    pwrite(fd, "x", 1, (off_t)(at[1] + 300 * MB)) != 1) {
		skip(&w, "no sparse file of 1 TiB: %s", strerror(errno));
		if (fd >= 0)
			close(fd);
		return;
	}
	p = mmap(NULL, w.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
	if (p == MAP_FAILED) {
		skip(&w, "cannot map 1 TiB: %s (a limit of address space?)", strerror(errno));
	} else {
		if (ask(&w, p + at[0], GB, 0, &s[0]) && ask(&w, p + at[1], GB, 1, &s[1])) {
			sum.n = s[0].n;
			sum.min = (s[0].min + s[1].min) / 2;
			sum.max = (s[0].max + s[1].max) / 2;
			row_series(&w, "insns_per_gib", &sum);
			row_scaled(&w, "insns_per_page", &sum, (double)(GB / pgsize));
		}
		munmap(p, w.bytes);
	}
	close(fd);
}

/**
 * run_mincore - the experiment "mincore"
 */
void run_mincore(void)
{
	struct where w = { .experiment = "mincore" };
	unsigned int i;

	w.bytes = memory_for(64 * MB, 2);
	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		w.kb = sizes[i];
		w.name = "anon";
		progress(&w);
		if (size_obtainable(&w))
			anon(&w);
		w.name = "swapped";
		progress(&w);
		if (size_obtainable(&w))
			swapped(&w);
		w.name = "file-unmapped";
		progress(&w);
		file(&w, false);
		w.name = "file-mapped";
		progress(&w);
		file(&w, true);
		w.name = "hole";
		progress(&w);
		if (size_obtainable(&w))
			hole(&w);
	}
	sparse();
}

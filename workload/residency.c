// SPDX-License-Identifier: GPL-2.0
/*
 * residency: vmtouch and fincore say how much of a cached file is in memory.
 *
 * Both map the file and call mincore() (path 3) here; where the kernel has cachestat(),
 * which the lab's has not, fincore prefers that. Measured from start to end of the
 * program, as one who runs it waits.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "workload.h"

#define MOUNT	WORKDIR "/files"
#define CACHED	MOUNT "/file"

/*
 * A file of folios of one size on a tmpfs of its own, all of it in memory. With
 * huge=within_size a file that grows by a folio at each write gets such folios.
 */
static bool file_make(const struct where *w)
{
	const char *huge = w->kb == 4 ? "huge=never" : w->kb == 64 ? "huge=within_size" :
			   "huge=always";
	size_t at, step = w->kb * KB;
	char *buf = scratch(step);
	bool ok;
	int fd;

	mkdir(MOUNT, 0700);
	ok = !mount("files", MOUNT, "tmpfs", 0, huge);
	fd = ok ? open(CACHED, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
	ok = fd >= 0;
	for (at = 0; ok && at < w->bytes; at += step)
		ok = write(fd, buf, step) == (ssize_t)step;
	if (!ok)
		fail(w, "no file of %zu MiB on a tmpfs with %s: %s", w->bytes / MB, huge,
		     strerror(errno));
	if (fd >= 0)
		close(fd);
	munmap(buf, step);
	return ok;
}

/* The folios of the file must be of the case's size, all of them. */
static bool file_check(const struct where *w)
{
	int fd = open(CACHED, O_RDONLY | O_CLOEXEC), pagemap = -1;
	char *at = MAP_FAILED;
	struct snapshot s;
	size_t i, kb = w->kb, per = w->kb * KB / pgsize;
	bool ok = false;

	if (fd >= 0)
		at = mmap(NULL, w->bytes, PROT_READ, MAP_SHARED, fd, 0);
	for (i = 0; at != MAP_FAILED && i < w->bytes; i += pgsize)
		(void)*(volatile char *)(at + i);
	if (at != MAP_FAILED)
		pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	if (pagemap >= 0 && snapshot_of(&s, pagemap, at, w->bytes)) {
		for (i = 0; i < s.pages && kb == w->kb; i += per)
			kb = snapshot_folio_kb(&s, i);
		ok = kb == w->kb;
		if (!ok)
			fail(w, "page %zu of the file (%#llx) lies in a folio of %zu KiB, not of %u", i - per,
			     (unsigned long long)s.pme[i - per], kb, w->kb);
		snapshot_free(&s);
	} else {
		fail(w, "the file's folios cannot be looked at");
	}
	close(pagemap);
	if (at != MAP_FAILED)
		munmap(at, w->bytes);
	close(fd);
	return ok;
}

/* What the program printed must say that all of the file is there. */
static bool says_all(const struct where *w)
{
	char all[32], line[256];
	bool found = false;
	FILE *f = fopen(WORKDIR "/log", "r");

	snprintf(all, sizeof(all), "%zu", w->bytes / pgsize);
	while (f && fgets(line, sizeof(line), f))
		found |= strstr(line, all) != NULL;
	if (f)
		fclose(f);
	if (!found)
		fail(w, "%s does not see all %s pages; last: %s", w->name, all, program_log());
	return found;
}

static void one(const struct where *w, char *const argv[])
{
	struct series insns = { 0 }, faults = { 0 };
	struct used used;
	unsigned int i;

	for (i = 0; i < opt.repeats; i++) {
		progress(w);
		if (!program_run(w, argv, &used) || !says_all(w))
			return;
		series_add(&insns, (double)used.insns);
		series_add(&faults, (double)used.faults);
	}
	row_series(w, "insns", &insns);
	row_series(w, "faults", &faults);
}

/**
 * run_residency - the workload "residency"
 */
void run_residency(void)
{
	char *const vmtouch[] = { "vmtouch", CACHED, NULL };
	char *const fincore[] = { "fincore", "--noheadings", CACHED, NULL };
	struct where w = { .experiment = "residency", .name = "vmtouch" };
	unsigned int size;

	w.bytes = opt.quick ? 64 * MB : 512 * MB;
	/* stop khugepaged, which would make the first folios of a mapped file larger */
	sizes_always(4);
	setting_set(THP_DIR "/enabled", "never");
	usleep(20000);
	for (size = 0; size < ARRAY_SIZE(workload_sizes); size++) {
		w.kb = workload_sizes[size];
		if (!size_wanted(w.kb))
			continue;
		w.name = "vmtouch";
		if (file_make(&w) && file_check(&w)) {
			one(&w, vmtouch);
			w.name = "fincore";
			one(&w, fincore);
		}
		umount2(MOUNT, MNT_DETACH);
	}
}

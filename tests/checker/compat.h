/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The uapi of newer kernels, where the distribution's headers are older.
 * Values are the kernel's ABI and never change.
 */
#ifndef CHK_COMPAT_H
#define CHK_COMPAT_H

#include <linux/ioctl.h>
#include <stdint.h>

#ifndef MADV_COLD
#define MADV_COLD 20
#define MADV_PAGEOUT 21
#endif
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

#define CHK_UFFD_API 0xAAULL
#define CHK_UFFD_WP_UNPOPULATED (1ULL << 13)
#define CHK_UFFD_WP_ASYNC (1ULL << 15)

struct chk_region {
	uint64_t start, end, categories;
};

struct chk_scan_arg {
	uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
	uint64_t category_inverted, category_mask, category_anyof_mask;
	uint64_t return_mask;
};

#define CHK_PAGEMAP_SCAN _IOWR('f', 16, struct chk_scan_arg)
#define CHK_IS_WRITTEN (1 << 1)
#define CHK_IS_PRESENT (1 << 3)
#define CHK_IS_SWAPPED (1 << 4)
#define CHK_SCAN_WP_MATCHING 1

/* pagemap bits */
#define PM_SOFT_DIRTY (1ULL << 55)
#define PM_UFFD_WP (1ULL << 57)
#define PM_SWAP (1ULL << 62)
#define PM_PRESENT (1ULL << 63)

#endif

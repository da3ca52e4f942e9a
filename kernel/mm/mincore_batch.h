/* SPDX-License-Identifier: GPL-2.0 */
/*
 * mincore() by runs of page table entries and by folios of the page cache.
 */
#ifndef __MM_MINCORE_BATCH_H
#define __MM_MINCORE_BATCH_H

#include <linux/compiler.h>
#include <linux/leafops.h>
#include <linux/pgtable.h>
#include <linux/unroll.h>

struct address_space;
struct vm_area_struct;

extern bool mincore_batch;

/**
 * mincore_batch_enabled - is mincore() to look at runs and folios?
 *
 * Return: false if the administrator asked for the page by page code.
 */
static inline bool mincore_batch_enabled(void)
{
	return READ_ONCE(mincore_batch);
}

void mincore_mapping_range(struct address_space *mapping, pgoff_t first,
			   unsigned long nr, unsigned char *vec);
void mincore_unmapped(struct vm_area_struct *vma, unsigned long addr,
		      unsigned long nr, unsigned char *vec);
void mincore_ptes(struct vm_area_struct *vma, unsigned long addr,
		  unsigned int nr, pte_t *ptep, unsigned char *vec);

/* mm/mincore.c */
unsigned char mincore_swap(swp_entry_t entry, bool shmem);

/*
 * Where pte_present() asks for any of a set of bits, a bit that the entries of
 * a group have in common proves that all of them are present: an AND per entry
 * and one test per group.  arm64 has pte_batch_hint() instead; where neither
 * is known, each entry is tested.
 */
#define MINCORE_PTE_GROUP	8
#define MINCORE_PTES_SHARE_PRESENT \
	(IS_ENABLED(CONFIG_X86_64) || IS_ENABLED(CONFIG_RISCV))

/**
 * mincore_group_present - are all entries of a group present?
 * @ptep: the first of MINCORE_PTE_GROUP entries of one page table.
 *
 * Context: page table lock held: it keeps entries from coming and going, and
 * only young and dirty, which nobody looks at here, may change by hardware.
 * Return: true if all are present, false if one may not be.
 */
static inline bool mincore_group_present(pte_t *ptep)
{
	typeof(pte_val(ptep_get(ptep))) common = pte_val(ptep_get(ptep));

	unrolled_full
	for (unsigned int i = 1; i < MINCORE_PTE_GROUP; i++)
		common &= pte_val(ptep_get(ptep + i));

	return pte_present(__pte(common));
}

/**
 * mincore_pte_unmapped - does an entry leave its page to the page cache?
 * @pte: the entry, not present.
 *
 * Markers (userfaultfd write-protect, guard regions, poison) stand in tables
 * where there is no page, and are answered like empty entries.
 *
 * Return: true for an empty entry and for a marker.
 */
static inline bool mincore_pte_unmapped(pte_t pte)
{
	return pte_none(pte) || pte_is_marker(pte);
}

/**
 * mincore_unmapped_run - count the entries that map nothing
 * @ptep: the first entry, for which mincore_pte_unmapped() holds.
 * @max: entries in the range, at least 1, all of one page table.
 *
 * Context: page table lock held.
 * Return: number of entries, 1 to @max.
 */
static inline unsigned int mincore_unmapped_run(pte_t *ptep, unsigned int max)
{
	unsigned int nr;

	for (nr = 1; nr < max; nr++) {
		if (!mincore_pte_unmapped(ptep_get(ptep + nr)))
			break;
	}

	return nr;
}

#endif /* __MM_MINCORE_BATCH_H */

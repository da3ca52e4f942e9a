// SPDX-License-Identifier: GPL-2.0
/*
 * mincore() by runs of page table entries and by folios of the page cache,
 * rather than page by page: mm/mincore.c finds the range, takes the locks and
 * calls in here.
 */
#include <linux/init.h>
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/rcupdate.h>
#include <linux/shmem_fs.h>
#include <linux/swap.h>
#include <linux/xarray.h>

#include "internal.h"
#include "mincore_batch.h"
#include "swap.h"
#include "swap_table.h"
#include "thp_batch.h"

/* Present entries to see one at a time before whole groups are tried. */
#define MINCORE_PTE_WARMUP	8

/* /sys/kernel/mm/transparent_hugepage/mincore_batch */
bool mincore_batch __read_mostly = true;

/*
 * How folios are looked at, in the page cache and in the swap cache: without a
 * reference.  What is said about a folio was read between two looks at its slot
 * that both found it there, so it was true of this slot at that moment; if the
 * second look finds something else, the slot is looked up anew.  Nothing but
 * the flags word is read, since a folio that leaves its cache meanwhile may be
 * freed and be part of something else before that second look.
 */
static unsigned long mincore_folio_flags(const struct folio *folio)
{
	const unsigned long flags = READ_ONCE(folio->flags.f);

	/*
	 * Flags first, then the slot again.  Pairs with the full barrier in
	 * folio_put_testzero(), between the removal from the slot and whatever
	 * becomes of the folio.
	 */
	smp_rmb();
	return flags;
}

/**
 * mincore_leaf_node - look at the slots of one node at the bottom of the tree
 * @xas: at an entry; is moved to the last slot that was looked at.
 * @last: last index to look at.
 * @vec: gets a 1 for each resident page, is zeroed before; starts at @xas.
 *
 * All of what is done for each page of a file in small folios.  A large folio
 * is looked at once, and its other slots refer to the first.  Stops at swap
 * entries and shadows and where the tree is changing.
 *
 * Context: RCU read lock held.
 * Return: number of slots looked at, 0 if that did not work for the first one.
 */
static unsigned int mincore_leaf_node(struct xa_state *xas, pgoff_t last,
				      unsigned char *vec)
{
	const unsigned int offset = xas->xa_index & XA_CHUNK_MASK;
	const struct xa_node *node = xas->xa_node;
	const struct folio *folio = NULL;
	unsigned int head = XA_CHUNK_SIZE;
	bool resident = false;
	unsigned int nr, i;

	/* A lone entry at index 0 has no node; large ones may be further up. */
	if (!node || node->shift)
		return 0;

	nr = min(XA_CHUNK_SIZE - offset, last - xas->xa_index + 1);
	for (i = 0; i < nr; i++) {
		unsigned int slot = offset + i;
		const void *entry = xa_entry(xas->xa, node, slot);

		if (!entry)
			continue;
		if (xa_is_sibling(entry)) {
			slot = xa_to_sibling(entry);
			entry = xa_entry(xas->xa, node, slot);
		}
		if (slot != head || entry != folio) {
			if (!entry || xa_is_value(entry) || xa_is_internal(entry))
				break;
			folio = entry;
			head = slot;
			resident = mincore_folio_flags(folio) & BIT(PG_uptodate);
			if (folio != xa_entry(xas->xa, node, head))
				break;
		}
		vec[i] = resident;
	}

	if (i) {
		xas->xa_index += i - 1;
		xas->xa_offset = offset + i - 1;
	}
	return i;
}

/**
 * mincore_mapping_range - which pages of a file are in the page cache?
 * @mapping: the file's page cache.
 * @first: index of the first page.
 * @nr: number of pages, at least 1.
 * @vec: gets a byte for each of them: 1 if the page is resident, else 0.
 *
 * One walk over the cache, one step for each folio or swap entry in it: a hole
 * of any length costs nothing but the zeroes in @vec.
 *
 * Context: any, may be called with a page table lock held.
 */
void mincore_mapping_range(struct address_space *mapping, pgoff_t first,
			   unsigned long nr, unsigned char *vec)
{
	const pgoff_t last = first + nr - 1;
	XA_STATE(xas, &mapping->i_pages, first);
	struct folio *folio;

	memset(vec, 0, nr);

	rcu_read_lock();
	xas_for_each(&xas, folio, last) {
		pgoff_t start, end;
		unsigned int order;
		bool resident;

		if (xas_retry(&xas, folio))
			continue;

		if (mincore_leaf_node(&xas, last, vec + (xas.xa_index - first))) {
			if (xas.xa_index == last)
				break;
			continue;
		}

		/* The size is for the slot to tell: there it is stable. */
		order = xas_get_order(&xas);
		if (xa_is_value(folio)) {
			/*
			 * The shadow of what was evicted, or a DAX entry; or
			 * what tmpfs swapped out: a process that maps the file
			 * has no swap entry in its page table for that.
			 */
			resident = shmem_mapping(mapping) &&
				   mincore_swap(radix_to_swp_entry(folio), true);
		} else {
			resident = mincore_folio_flags(folio) & BIT(PG_uptodate);
		}

		if (unlikely(folio != xas_reload(&xas))) {
			xas_reset(&xas);
			continue;
		}

		/* The walk may have begun in the middle of an entry. */
		start = max(round_down(xas.xa_index, 1UL << order), first);
		end = min(round_up(xas.xa_index + 1, 1UL << order) - 1, last);
		if (resident)
			memset(vec + (start - first), 1, end - start + 1);
		if (end == last)
			break;
	}
	rcu_read_unlock();
}

/**
 * mincore_unmapped - which pages of a range without page tables are resident?
 * @vma: the mapping the range belongs to.
 * @addr: first address of the range.
 * @nr: pages in the range, at least 1.
 * @vec: gets a byte for each page: 1 if it is resident, else 0.
 *
 * Context: mmap_lock held.
 */
void mincore_unmapped(struct vm_area_struct *vma, unsigned long addr,
		      unsigned long nr, unsigned char *vec)
{
	if (vma->vm_file)
		mincore_mapping_range(vma->vm_file->f_mapping,
				      linear_page_index(vma, addr), nr, vec);
	else
		memset(vec, 0, nr);
}

#ifdef CONFIG_SWAP
/* Is there an uptodate folio in this slot of the swap cache? */
static bool mincore_swap_slot(const atomic_long_t *slot)
{
	for (;;) {
		unsigned long swp_tb = atomic_long_read(slot);
		const struct folio *folio;
		unsigned long flags;

		if (!swp_tb_is_folio(swp_tb))
			return false;
		folio = swp_tb_to_folio(swp_tb);
		flags = mincore_folio_flags(folio);
		/* The swap count in there may have changed, and does not matter. */
		swp_tb = atomic_long_read(slot);
		if (swp_tb_is_folio(swp_tb) && swp_tb_to_folio(swp_tb) == folio)
			return flags & BIT(PG_uptodate);
	}
}

/*
 * How many entries, from ptep on, continue a run of neighbouring swap slots of
 * which ptep[-1] and ptep[0] are part?  To decode an entry takes many steps, to
 * see that it differs from the last one as that did from the one before takes
 * few.  Should an architecture not store the offset as one number, then the
 * last entry is not what it has to be, and there is no run.
 */
static unsigned int mincore_swap_run(pte_t *ptep, unsigned int max)
{
	typeof(pte_val(ptep_get(ptep))) next = pte_val(ptep_get(ptep));
	const typeof(next) step = next - pte_val(ptep_get(ptep - 1));
	unsigned int nr;

	for (nr = 1; nr < max; nr++) {
		next += step;
		if (pte_val(ptep_get(ptep + nr)) != next)
			break;
	}

	if (softleaf_from_pte(ptep_get(ptep + nr - 1)).val !=
	    softleaf_from_pte(ptep_get(ptep)).val + nr - 1)
		return 1;
	return nr;
}

/**
 * mincore_leaf_run - look at swap, migration, device and poison entries
 * @ptep: the first entry, not present and not mincore_pte_unmapped().
 * @max: entries in the range, at least 1, all of one page table.
 * @vec: gets a byte for each entry of the run.
 *
 * A swapped out page is resident if it is in the swap cache, which is a table
 * for each cluster of swap slots.  Neighbours are mostly of one cluster, so
 * that the table is looked up once for them; and mostly of neighbouring slots,
 * see mincore_swap_run().
 *
 * Context: page table lock held: the entries hold their swap slots, so that
 * neither the device nor the table of a cluster can go away.
 * Return: number of entries, 1 to @max.
 */
static noinline unsigned int mincore_leaf_run(pte_t *ptep, unsigned int max,
					      unsigned char *vec)
{
	const atomic_long_t *table = NULL;
	unsigned long prev = ULONG_MAX;
	unsigned int nr = 0;

	rcu_read_lock();
	while (nr < max) {
		const softleaf_t entry = softleaf_from_pte(ptep_get(ptep + nr));
		const unsigned int offset = swp_cluster_offset(entry);
		unsigned int run = 1;

		if (unlikely(!softleaf_is_swap(entry))) {
			if (nr && (softleaf_is_none(entry) || softleaf_is_marker(entry)))
				break;
			vec[nr++] = mincore_swap(entry, false);
			table = NULL;
			continue;
		}

		if (!table || entry.val / SWAPFILE_CLUSTER != prev / SWAPFILE_CLUSTER)
			table = rcu_dereference(__swap_entry_to_cluster(entry)->table);
		else if (entry.val == prev + 1)
			run = mincore_swap_run(ptep + nr,
					       min(max - nr, SWAPFILE_CLUSTER - offset));

		prev = entry.val + run - 1;
		for (unsigned int i = 0; i < run; i++)
			vec[nr++] = mincore_swap_slot(table + offset + i);
	}
	rcu_read_unlock();

	return nr;
}
#else
static noinline unsigned int mincore_leaf_run(pte_t *ptep, unsigned int max,
					      unsigned char *vec)
{
	*vec = mincore_swap(softleaf_from_pte(ptep_get(ptep)), false);
	return 1;
}
#endif

/* Fill in whole groups of present entries; return their number of entries. */
static noinline unsigned int mincore_present_groups(pte_t *ptep, unsigned int max,
						    unsigned char *vec)
{
	const pte_t *end = ptep + round_down(max, MINCORE_PTE_GROUP);
	pte_t *p = ptep;

	if (!MINCORE_PTES_SHARE_PRESENT)
		return 0;

	while (p < end && mincore_group_present(p))
		p += MINCORE_PTE_GROUP;

	if (p != ptep)
		memset(vec, 1, p - ptep);
	return p - ptep;
}

/*
 * Fill in a range whose first entry maps nothing, and return how many pages
 * that was.  The page cache is asked for the run of such entries, but at least
 * for so many pages ahead, which grows: where there are many short runs in a
 * table, one walk serves them all.
 */
static noinline unsigned int
mincore_unmapped_ahead(struct vm_area_struct *vma, unsigned long addr,
		       pte_t *ptep, unsigned int max, unsigned int *ahead,
		       unsigned char *vec)
{
	unsigned int nr = max;

	if (vma->vm_file) {
		nr = max(mincore_unmapped_run(ptep, max), min(*ahead, max));
		*ahead *= 4;
	}
	mincore_unmapped(vma, addr, nr, vec);

	return nr;
}

/**
 * mincore_ptes - which pages of a range are resident?
 * @vma: the mapping the range belongs to.
 * @addr: first address of the range.
 * @nr: pages in the range, at least 1, all of one page table.
 * @ptep: page table entry of @addr.
 * @vec: gets a byte for each page: 1 if it is resident, else 0.
 *
 * Context: mmap_lock and page table lock held.
 */
void mincore_ptes(struct vm_area_struct *vma, unsigned long addr,
		  unsigned int nr, pte_t *ptep, unsigned char *vec)
{
	/*
	 * Up to here, @vec has what holds for pages without an entry; mapped
	 * or swapped out pages are overwritten when their turn comes.
	 */
	unsigned long known = 0;
	/* Where to try groups: once in a run, so that short runs lose nothing. */
	unsigned long groups = 0;
	unsigned int ahead = 1, run;
	unsigned long i = 0;

	while (i < nr) {
		const pte_t pte = ptep_get(ptep + i);

		if (pte_present(pte)) {
			if (i == groups) {
				run = mincore_present_groups(ptep + i, nr - i, vec + i);
				i += run;
				if (run)
					continue;
			}
			run = pte_batch_hint(ptep + i, pte);
			if (run > 1) {
				run = min(run, nr - i);
				memset(vec + i, 1, run);
				i += run;
			} else {
				vec[i++] = 1;
			}
			continue;
		}

		if (mincore_pte_unmapped(pte)) {
			if (i >= known)
				known = i + mincore_unmapped_ahead(vma,
						addr + i * PAGE_SIZE, ptep + i,
						nr - i, &ahead, vec + i);
			do {
				i++;
			} while (i < known && pte_none(ptep_get(ptep + i)));
		} else {
			i += mincore_leaf_run(ptep + i, nr - i, vec + i);
		}
		groups = i + MINCORE_PTE_WARMUP;
	}
}

static ssize_t mincore_batch_show(struct kobject *kobj,
				  struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%d\n", mincore_batch_enabled());
}

static ssize_t mincore_batch_store(struct kobject *kobj,
				   struct kobj_attribute *attr,
				   const char *buf, size_t count)
{
	return thp_batch_switch_store(&mincore_batch, buf, count);
}

static struct kobj_attribute mincore_batch_attr = __ATTR_RW(mincore_batch);

static int __init mincore_batch_init(void)
{
	return thp_batch_create_knob(&mincore_batch_attr);
}
late_initcall(mincore_batch_init);

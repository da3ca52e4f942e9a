/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Write faults that copy a shared large folio: which order to copy.
 *
 * Everything down to "#ifdef __KERNEL__" is a pure function of what was read
 * from the page table. It is also compiled in user space, where patterns and
 * adversaries are played against it (see mm/tests/wp_copy_kunit.c for the part
 * that stays with the kernel).
 *
 * The evidence is the dirty bit. A copy maps the pages beyond the faulting one
 * writable, but clean and not young; so from then on a private page shows
 * whether the program has written it ("written") or has not ("unwritten").
 * Read-only pages say nothing: their dirty bit is from before the fork.
 *
 * Two rules permit a copy of 2^k pages:
 *
 * run:   the 2 * 2^k pages just below the block, or those just above it, are
 *        all written. That is a sequential (or backward) writer, or the inside
 *        of a region that is rewritten. It needs no state beyond the PTEs.
 *
 * dense: of the aligned window of 64 pages around the fault 70 % are written
 *        (wp_copy_dense_percent), and its unwritten pages, those of this copy
 *        included, stay at most half of the written ones. That is a random writer
 *        that reaches nearly everything. No large block is whole in such a window,
 *        except now and then one of the smallest size; where it is not, the pages
 *        that are still shared in the 16 around the fault are copied one by one,
 *        in this one fault ("fill").
 *
 * Whether a random writer goes on cannot be told from the page table. With 70 %
 * it has at most a tenth copied in vain wherever it stops, and saves a sixth of
 * its faults if it does not; with 50 % that is a third and two fifths.
 *
 * Bound: between two forks, pages that were copied and are never written are
 * at most 1.5 times the pages the program wrote. Argument:
 *
 * - Let a run copy of n pages charge its at most n - 1 unwritten pages to the
 *   2n written pages it relied upon, half a page each. No page is charged twice
 *   from the same side for pages that stay unwritten: let copies B1 and B2, B2
 *   further away, both rely on the page p below them. The run of B2 is gapless
 *   from p up to B2, so B1 lies within it and all of B1 is written: if B1 was
 *   copied first, nothing of it stayed unwritten; if B2 was, then B1 was no
 *   longer shared and not copied at all. With two sides, a written page is
 *   charged at most 2 * 1/2 page.
 * - Each window ends with at most half as many unwritten pages from dense copies
 *   as it has written ones, as that is what is checked at the last of them, and
 *   later the former only shrink and the latter only grow.
 *
 * What counts as written without having been since the fork: folios that a
 * first write brought in as a whole (all of their PTEs are dirty at once), and
 * pages of an exclusive folio that were dirty before the fork and became
 * writable in the window of a reuse fault. Both are pages of the program's own
 * that it had written once; the bound then holds with them counted as written.
 */
#ifndef __MM_WP_COPY_H
#define __MM_WP_COPY_H

/* Pages in the window of the dense rule. */
#define WP_COPY_WINDOW		64

/* What share of them must be written, unless wp_copy_dense_percent says otherwise. */
#define WP_COPY_DENSE_PERCENT	70

/* The block that the dense rule may fill up, and how many pages of it at a time. */
#define WP_COPY_FILL_ORDER	4
#define WP_COPY_FILL_MAX	8

/* The smallest order of a large anonymous folio. */
#define WP_COPY_MIN_ORDER	2

/**
 * wp_copy_runs - the run rule
 * @orders: bitmap of the orders that are possible, not empty.
 * @page: the faulting page, if the run is below it; ~page if it is above.
 * @run: how many pages in a row are written, from the smallest possible block
 *	around the fault on.
 *
 * Climbs from the smallest order up and stops at the first one that is not
 * justified. A larger block that reaches further to this side than the smallest
 * one does has no run there: what is next to the smallest would be part of it.
 *
 * Return: the subset of @orders that may be copied.
 */
static inline unsigned long wp_copy_runs(unsigned long orders,
					 unsigned long page, unsigned long run)
{
	const unsigned long smallest = orders & -orders;
	unsigned long permitted = 0, nr;

	/* An order's bit in the bitmap is its number of pages. */
	for (; orders; orders -= nr) {
		nr = orders & -orders;
		if ((page & (nr - 1)) >= smallest || run < 2 * nr)
			break;
		permitted |= nr;
	}
	return permitted;
}

/* How many pages of a window must be written if @percent of them must? */
static inline unsigned int wp_copy_dense_nr(unsigned int percent)
{
	return (percent * WP_COPY_WINDOW + 99) / 100;
}

/**
 * wp_copy_dense - the dense rule
 * @written: how many pages of the window are written.
 * @unwritten: how many are private, but not written.
 * @dense: how many must be written.
 *
 * Return: how many pages may be copied beyond the faulting one.
 */
static inline unsigned int wp_copy_dense(unsigned int written,
					 unsigned int unwritten,
					 unsigned int dense)
{
	if (written < dense || 2 * unwritten >= written)
		return 0;
	return written / 2 - unwritten;
}

/**
 * wp_copy_crowded - is it worth while to look for a dense window?
 * @mapcount: mappings of pages of the old folio, by whomever.
 * @nr: pages of the old folio.
 * @dense: how many pages of a window must be written.
 *
 * Fork maps all of the folio once more and each copy takes one mapping away, so
 * what is missing to a multiple of @nr tells how many of its pages have been
 * copied, without reading a PTE. This spares a sparse writer the look at the
 * window. It is a guess, and wrong where a folio is mapped in part; the rule
 * itself relies on the window alone. Folios smaller than a quarter of the
 * window say too little.
 *
 * Return: whether of the folio as large a share has been copied.
 */
static inline bool wp_copy_crowded(unsigned int mapcount, unsigned int nr,
				   unsigned int dense)
{
	return nr >= WP_COPY_WINDOW / 4 &&
	       (-mapcount & (nr - 1)) * WP_COPY_WINDOW >= nr * dense;
}

#ifdef __KERNEL__
#ifdef CONFIG_TRANSPARENT_HUGEPAGE
/* What /sys/kernel/mm/transparent_hugepage/wp_copy says. */
enum wp_copy_mode {
	WP_COPY_NEVER,
	WP_COPY_AUTO,
	WP_COPY_ALWAYS,
};

extern enum wp_copy_mode wp_copy_mode;
extern unsigned long wp_copy_orders_mask;

bool __wp_copy_hint(struct vm_fault *vmf, struct folio *folio);
unsigned long __wp_copy_orders(struct vm_fault *vmf, struct folio *folio);
bool __wp_copy_large(struct vm_fault *vmf, unsigned long orders, vm_fault_t *ret);

/*
 * In place of orders: fill up with this many pages, see above; after them all of
 * the window is private.
 */
#define WP_COPY_FILL_SHIFT	16
#define WP_COPY_FILL_LAST	BIT(0)

/* In khugepaged.c, which makes large folios of what was copied page by page. */
void khugepaged_hint(struct vm_area_struct *vma, unsigned long addr);

/* Is any size enabled, for whatever area, that a fault may copy to? */
static inline bool wp_copy_any_order(void)
{
	return (READ_ONCE(huge_anon_orders_always) |
		READ_ONCE(huge_anon_orders_madvise) |
		READ_ONCE(huge_anon_orders_inherit)) &
	       READ_ONCE(wp_copy_orders_mask);
}

/**
 * wp_copy_orders - orders of large folio that this write fault may copy to
 * @vmf: the fault, on a PTE of a private mapping that is to be copied.
 * @folio: the old folio; NULL for the zero page and what has no struct page.
 *
 * Context: PTE lock held.
 * Return: bitmap of orders; 0 if a single page is to be copied.
 */
static inline unsigned long wp_copy_orders(struct vm_fault *vmf,
					   struct folio *folio)
{
	const enum wp_copy_mode mode = READ_ONCE(wp_copy_mode);

	if (mode == WP_COPY_NEVER)
		return 0;
	if (folio ? !folio_test_large(folio) : !wp_copy_any_order())
		return 0;
	if (folio && mode == WP_COPY_AUTO && !__wp_copy_hint(vmf, folio))
		return 0;
	return __wp_copy_orders(vmf, folio);
}

/**
 * wp_copy_large - serve a write fault with a large copy
 * @vmf: the fault, as for wp_page_copy().
 * @orders: what wp_copy_orders() returned.
 * @ret: result of the fault, if it was served.
 *
 * Context: VMA lock or mmap_lock held, no PTE lock, reference on the old folio
 * held; that reference is dropped if the fault was served.
 * Return: whether it was; if not, nothing has changed and a single page is to
 * be copied.
 */
static inline bool wp_copy_large(struct vm_fault *vmf, unsigned long orders,
				 vm_fault_t *ret)
{
	return orders && __wp_copy_large(vmf, orders, ret);
}
#else
static inline unsigned long wp_copy_orders(struct vm_fault *vmf,
					   struct folio *folio)
{
	return 0;
}

static inline bool wp_copy_large(struct vm_fault *vmf, unsigned long orders,
				 vm_fault_t *ret)
{
	return false;
}
#endif /* CONFIG_TRANSPARENT_HUGEPAGE */
#endif /* __KERNEL__ */

#endif /* __MM_WP_COPY_H */

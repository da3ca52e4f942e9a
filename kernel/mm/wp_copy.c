// SPDX-License-Identifier: GPL-2.0
/*
 * Write faults that copy a shared large folio, or replace the zero page, by a
 * large folio.
 *
 * do_wp_page() asks wp_copy_orders() under the PTE lock which orders the fault
 * may copy to, and after dropping the lock has wp_copy_large() try them. The
 * policy is in wp_copy.h; here is the mechanism. Whenever anything is in the
 * way, the fault goes on with the single page of wp_page_copy().
 *
 * What makes a copied page safe that is mapped writable, but clean:
 *
 * - Swap-out. Reclaim drops a clean anonymous folio only if it is lazyfree or
 *   has a copy in the swap cache that is as good. A new folio is SwapBacked
 *   and not in the swap cache, and shrink_folio_list() marks every such folio
 *   dirty when it adds it to the swap cache, whatever its PTEs say. A write
 *   after that sets the dirty bit of the PTE, which try_to_unmap() collects.
 * - MADV_FREE. It takes a clean folio for one whose contents nobody needs, and
 *   does not ask whether others map it: after another fork the child's pages
 *   would be dropped with the parent's. So the folio itself is marked dirty.
 * - Migration and collapse keep the dirty bit or set it, never clear it. KSM
 *   marks folio or stable page dirty itself.
 * - Soft-dirty. With tracking on, a page without the soft-dirty bit has to be
 *   write-protected; such VMAs are left to single copies. Others report every
 *   page as soft-dirty, so the bit is set here, which says the same.
 * - Without a hardware dirty bit, the first write to such a page takes one more
 *   fault that only sets the bit: no copy, no allocation, and the evidence for
 *   the policy is the same. Likewise the accessed bit.
 *
 * arm64 contpte: a folded block has one dirty and one accessed bit for all its
 * PTEs, so to fold would declare everything written. See wp_copy_set_ptes().
 */
#include <linux/delayacct.h>
#include <linux/highmem.h>
#include <linux/huge_mm.h>
#include <linux/hugetlb.h>
#include <linux/kmsan.h>
#include <linux/ksm.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/mmu_notifier.h>
#include <linux/oom.h>
#include <linux/rmap.h>
#include <linux/swap.h>
#include <linux/userfaultfd_k.h>
#include <trace/events/wp_fault.h>
#include <asm/tlbflush.h>

#include "internal.h"
#include "swap.h"
#include "thp_batch.h"
#include "wp_copy.h"

enum wp_copy_mode wp_copy_mode __read_mostly = WP_COPY_AUTO;

/* The orders that wp_copy_max_kb lets a fault copy to. */
static unsigned int wp_copy_max_kb __read_mostly;
unsigned long wp_copy_orders_mask __read_mostly;

static void wp_copy_set_max(unsigned int kb)
{
	const unsigned int nr = kb / (PAGE_SIZE / SZ_1K);
	unsigned long mask = 0;

	if (nr >= 1U << WP_COPY_MIN_ORDER)
		mask = GENMASK(min_t(int, ilog2(nr), PMD_ORDER - 1),
			       WP_COPY_MIN_ORDER);
	WRITE_ONCE(wp_copy_max_kb, kb);
	WRITE_ONCE(wp_copy_orders_mask, mask);
}

/*
 * What share of a window must be written before the dense rule fills it up; and
 * how many pages that is. The lower, the fewer faults a random writer has that
 * reaches everything, and the more is copied in vain for one that stops before.
 */
static unsigned int wp_copy_dense_percent __read_mostly;
static unsigned int wp_copy_dense_pages __read_mostly;

static void wp_copy_set_dense(unsigned int percent)
{
	WRITE_ONCE(wp_copy_dense_percent, percent);
	WRITE_ONCE(wp_copy_dense_pages, wp_copy_dense_nr(percent));
}

/*
 * What a PTE tells about the page at its address: whether it is private to this
 * process, or at least writable, and whether the program has written it.
 */
static __always_inline bool wp_copy_private(pte_t pte)
{
	return pte_write(pte) && pte_present(pte);
}

static __always_inline bool wp_copy_written(pte_t pte)
{
	return wp_copy_private(pte) && pte_dirty(pte);
}

/*
 * A sequential run does not end with the page table. Map the one before (@step
 * is -1) or behind (1), where @addr is, without its lock: what is read there is
 * evidence for a guess, nothing that is acted upon. Within what one PUD maps,
 * PMDs are neighbours as addresses are.
 *
 * Return: the PTE of @addr, or NULL.
 */
static __always_inline pte_t *wp_copy_map_beyond(struct vm_fault *vmf,
						 unsigned long addr, int step)
{
	if (addr < vmf->vma->vm_start || addr >= vmf->vma->vm_end ||
	    ((addr ^ vmf->address) & PUD_MASK))
		return NULL;
	return pte_offset_map(vmf->pmd + step, addr);
}

/* Is the last page before this page table, or the first behind it, written? */
static __always_inline bool wp_copy_written_beyond(struct vm_fault *vmf, int step)
{
	const unsigned long addr = (vmf->address & PMD_MASK) +
				   (step < 0 ? -PAGE_SIZE : PMD_SIZE);
	pte_t *ptep = wp_copy_map_beyond(vmf, addr, step);
	bool ret;

	if (!ptep)
		return false;
	ret = wp_copy_written(ptep_get_lockless(ptep));
	pte_unmap(ptep);
	return ret;
}

/* How many pages in a row are written there, from @addr on, at most @nr? */
static noinline unsigned int wp_copy_run_beyond(struct vm_fault *vmf,
						unsigned long addr, int step,
						unsigned int nr)
{
	pte_t *ptep = wp_copy_map_beyond(vmf, addr, step);
	unsigned int i;

	if (!ptep)
		return 0;
	/* As far as this page table and the VMA reach. */
	if (step < 0)
		nr = min3(nr, pte_index(addr) + 1UL,
			  ((addr - vmf->vma->vm_start) >> PAGE_SHIFT) + 1);
	else
		nr = min3(nr, PTRS_PER_PTE - pte_index(addr),
			  (vmf->vma->vm_end - addr) >> PAGE_SHIFT);
	for (i = 0; i < nr; i++)
		if (!wp_copy_written(ptep_get_lockless(ptep + (long)i * step)))
			break;
	pte_unmap(ptep);
	return i;
}

/*
 * How many pages in a row are written just below the aligned block of 1 << @order
 * pages around the fault (@step is -1), or just above it (1)? Counts to @max.
 * Without the VMA, @vma, pages beyond its ends may count.
 *
 * Context: PTE lock held.
 */
static __always_inline unsigned int
wp_copy_run(struct vm_fault *vmf, unsigned int order, int step,
	    unsigned long max, const struct vm_area_struct *vma)
{
	const unsigned long size = PAGE_SIZE << order;
	const unsigned long first = ALIGN_DOWN(vmf->address, size);
	const unsigned long addr = step < 0 ? first - PAGE_SIZE : first + size;
	const unsigned long left = step < 0 ? pte_index(first) :
				   PTRS_PER_PTE - pte_index(first) - (1UL << order);
	pte_t *ptep = vmf->pte - pte_index(vmf->address) + pte_index(first);
	unsigned int nr, i;

	if (vma)
		max = min(max, (step < 0 ? first - vma->vm_start :
				vma->vm_end - first - size) >> PAGE_SHIFT);
	nr = min(max, left);
	ptep += step < 0 ? -1 : 1 << order;
	for (i = 0; i < nr; i++, ptep += step)
		if (!wp_copy_written(ptep_get(ptep)))
			return i;
	if (likely(i == max))
		return i;
	return i + wp_copy_run_beyond(vmf, addr + (long)i * step * PAGE_SIZE,
				      step, max - i);
}

/*
 * What a PTE looks like that maps the first page of @folio as that of the fault
 * maps its page, but for what may differ between the two: accessed, dirty.
 */
static pte_t wp_copy_like(struct vm_fault *vmf, struct folio *folio)
{
	return __pte_batch_clear_ignored(pfn_pte(folio_pfn(folio),
						 pte_pgprot(vmf->orig_pte)),
					 FPB_RESPECT_WRITE);
}

/*
 * Does @pte map @page, which @like was made for, read-only and not exclusive?
 *
 * Read-only is not enough: an exclusive page must be reused, as it may be
 * pinned, and a mixture of both is normal (pages that fork had to copy early,
 * that came back from swap, or that mprotect() left read-only). Protnone,
 * userfaultfd-wp and the like show as a difference to @like, which has none of
 * them; and so does a page of another folio, or another of the same.
 *
 * Context: PTE lock held.
 */
static __always_inline bool wp_copy_pte_shared(pte_t pte, struct page *page,
					       pte_t like)
{
	return pte_same(__pte_batch_clear_ignored(pte, FPB_RESPECT_WRITE), like) &&
	       !PageAnonExclusive(page);
}

/*
 * Do these @nr PTEs, from @ptep on, all map the pages of @folio from number
 * @idx on like that? A run of read-only PTEs need not be of one folio, nor do
 * address and folio have to be aligned to each other: mremap() sees to that.
 *
 * Context: PTE lock held.
 */
static bool wp_copy_range_shared(struct vm_fault *vmf, struct folio *folio,
				 unsigned long idx, pte_t *ptep, unsigned int nr)
{
	pte_t like = pte_advance_pfn(wp_copy_like(vmf, folio), idx);
	unsigned int i, j, step;

	for (i = 0; i < nr; i += step) {
		pte_t pte = ptep_get(ptep + i);

		/* One look at a block that the architecture handles as one. */
		step = min(pte_batch_hint(ptep + i, pte), nr - i);
		for (j = 0; j < step; j++)
			if (!wp_copy_pte_shared(pte, folio_page(folio, idx + i + j),
						like))
				return false;
		like = pte_advance_pfn(like, step);
	}
	return true;
}

/*
 * Are these @nr PTEs, from @ptep on, empty or read-only mappings of the zero
 * page? Anything else, markers included, is left alone.
 *
 * Context: PTE lock held.
 */
static bool wp_copy_range_zero(pte_t *ptep, unsigned int nr)
{
	unsigned int i;

	for (i = 0; i < nr; i++) {
		pte_t pte = ptep_get(ptep + i);

		if (pte_none(pte))
			continue;
		if (!pte_present(pte) || !is_zero_pfn(pte_pfn(pte)) ||
		    pte_write(pte) || pte_protnone(pte) || pte_uffd(pte))
			return false;
	}
	return true;
}

/*
 * Which page of @folio is at the start of the block of @order? -1 if the block
 * is not within the folio.
 */
static long wp_copy_first_page(struct vm_fault *vmf, struct folio *folio,
			       unsigned int order)
{
	const unsigned long nr = 1UL << order;
	const unsigned long below = (vmf->address >> PAGE_SHIFT) & (nr - 1);
	const unsigned long idx = folio_page_idx(folio, vmf->page);

	if (idx < below || idx - below + nr > folio_nr_pages(folio))
		return -1;
	return idx - below;
}

/* Of a window of @nr pages, how many are not written, and why. */
struct wp_copy_window {
	unsigned int nr;
	unsigned int unwritten;		/* private */
	unsigned int shared;		/* or not there */
};

/*
 * Count in the window whose PTEs begin at @ptep.
 *
 * Return: whether at least @dense pages are written.
 */
static bool wp_copy_count(struct wp_copy_window *window, pte_t *ptep,
			  unsigned int dense)
{
	const pte_t *end = ptep + window->nr;
	unsigned int unwritten = 0, shared = 0;

	for (; ptep < end; ptep++) {
		const pte_t pte = ptep_get(ptep);

		if (wp_copy_written(pte))
			continue;
		if (wp_copy_private(pte))
			unwritten++;
		else
			shared++;
		if (unwritten + shared + dense > window->nr)
			return false;
	}
	window->unwritten = unwritten;
	window->shared = shared;
	return true;
}

/*
 * Can the whole block of @order around the fault be copied?
 *
 * Context: PTE lock held.
 */
static bool wp_copy_block_shared(struct vm_fault *vmf, struct folio *folio,
				 unsigned int order)
{
	const unsigned int nr = 1U << order;
	pte_t *ptep = vmf->pte - ((vmf->address >> PAGE_SHIFT) & (nr - 1));
	long idx;

	if (!folio)
		return wp_copy_range_zero(ptep, nr);
	idx = wp_copy_first_page(vmf, folio, order);
	return idx >= 0 && wp_copy_range_shared(vmf, folio, idx, ptep, nr);
}

/*
 * Drop from @orders what the folio's edge or another mapping forbids. If a block
 * will do, then so will all the smaller ones within it.
 */
static unsigned long wp_copy_whole(struct vm_fault *vmf, struct folio *folio,
				   unsigned long orders)
{
	while (orders && !wp_copy_block_shared(vmf, folio, highest_order(orders)))
		orders &= ~BIT(highest_order(orders));
	return orders;
}

/*
 * A mapping of the whole folio by a PMD, whosever, is one mapping too many.
 */
static __always_inline bool wp_copy_folio_crowded(struct folio *folio)
{
	const unsigned int nr = folio_large_nr_pages(folio);
	const unsigned int mapcount = folio_large_mapcount(folio);
	const unsigned int dense = READ_ONCE(wp_copy_dense_pages);

	return wp_copy_crowded(mapcount, nr, dense) &&
	       wp_copy_crowded(mapcount - folio_entire_mapcount(folio), nr, dense);
}

/*
 * Next to the smallest block a page is written: is it a run? Where most of the
 * memory is written runs are common, but the block is rarely whole.
 */
static noinline bool wp_copy_hint_run(struct vm_fault *vmf)
{
	const unsigned int nr = 1U << WP_COPY_MIN_ORDER;
	pte_t *ptep = PTR_ALIGN_DOWN(vmf->pte, nr * sizeof(pte_t));
	unsigned int i;

	for (i = 0; i < nr; i++)
		if (wp_copy_private(ptep_get(ptep + i)))
			return false;
	return wp_copy_run(vmf, WP_COPY_MIN_ORDER, -1, 2 * nr, NULL) == 2 * nr ||
	       wp_copy_run(vmf, WP_COPY_MIN_ORDER, 1, 2 * nr, NULL) == 2 * nr;
}

/*
 * The same, where what is next to the block may be in another page table.
 * Context: PTE lock held.
 */
static noinline bool wp_copy_hint_edge(struct vm_fault *vmf)
{
	const unsigned int nr = 1U << WP_COPY_MIN_ORDER;
	pte_t *block = PTR_ALIGN_DOWN(vmf->pte, nr * sizeof(pte_t));
	const bool first = pte_index(vmf->address) < nr;
	const bool last = pte_index(vmf->address) >= PTRS_PER_PTE - nr;

	if (first ? !wp_copy_written_beyond(vmf, -1) :
		    !wp_copy_written(ptep_get(block - 1)))
		if (last ? !wp_copy_written_beyond(vmf, 1) :
			   !wp_copy_written(ptep_get(block + nr)))
			return false;
	return wp_copy_hint_run(vmf);
}

/**
 * __wp_copy_hint - can the policy permit anything?
 * @vmf: the fault.
 * @folio: the old folio, which is large.
 *
 * Nearly all faults of a sparse writer end here, so this reads little: the
 * mapcount of the folio for the dense rule, and for the run rule the pages next
 * to the smallest block. No larger block can do with less, unless the fault is
 * deep inside of it, and then it is not one of a sequential run.
 *
 * Context: PTE lock held.
 * Return: false if the copy is to be a single page.
 */
bool __wp_copy_hint(struct vm_fault *vmf, struct folio *folio)
{
	const unsigned long nr = 1UL << WP_COPY_MIN_ORDER;
	pte_t *block = PTR_ALIGN_DOWN(vmf->pte, nr * sizeof(pte_t));

	if (wp_copy_folio_crowded(folio))
		return true;
	/* A page table is aligned to its size: the last block or the first? */
	if (unlikely((((unsigned long)block / sizeof(pte_t) + nr) &
		      (PTRS_PER_PTE - 1)) <= nr))
		return wp_copy_hint_edge(vmf);
	if (wp_copy_written(ptep_get(block - 1)) ||
	    wp_copy_written(ptep_get(block + nr)))
		return wp_copy_hint_run(vmf);
	return false;
}

/* What the run rule permits of @orders, which are not empty. */
static unsigned long wp_copy_permitted_runs(struct vm_fault *vmf,
					    unsigned long orders)
{
	const unsigned long page = vmf->address >> PAGE_SHIFT;
	const unsigned int order = __ffs(orders);
	const unsigned long max = 2UL << highest_order(orders);
	unsigned long permitted;

	permitted = wp_copy_runs(orders, page,
				 wp_copy_run(vmf, order, -1, max, vmf->vma));
	if (permitted)
		return permitted;
	return wp_copy_runs(orders, ~page,
			    wp_copy_run(vmf, order, 1, max, vmf->vma));
}

/*
 * What the dense rule permits: the smallest possible @order, if its block is
 * whole, or a fill. The window is what of it lies in the VMA.
 */
static unsigned long wp_copy_permitted_dense(struct vm_fault *vmf,
					     struct folio *folio,
					     unsigned int order)
{
	const unsigned int dense = READ_ONCE(wp_copy_dense_pages);
	const struct vm_area_struct *vma = vmf->vma;
	const unsigned long size = PAGE_SIZE * WP_COPY_WINDOW;
	const unsigned long start = max(ALIGN_DOWN(vmf->address, size),
					vma->vm_start);
	const unsigned long end = min(ALIGN_DOWN(vmf->address, size) + size,
				      vma->vm_end);
	struct wp_copy_window window = { .nr = (end - start) >> PAGE_SHIFT };
	const unsigned long mask = READ_ONCE(wp_copy_orders_mask);
	unsigned int extra, nr;

	if (!wp_copy_count(&window, vmf->pte - ((vmf->address - start) >> PAGE_SHIFT),
			   dense))
		return 0;
	extra = wp_copy_dense(window.nr - window.unwritten - window.shared,
			      window.unwritten, dense);
	if (extra >= (1U << order) - 1 && wp_copy_block_shared(vmf, folio, order))
		return BIT(order);

	nr = min3(extra + 1, window.shared, WP_COPY_FILL_MAX);
	/* There may be no order left by now. */
	nr = mask ? min(nr, 1U << highest_order(mask)) : 0;
	if (nr < 2)
		return 0;
	return (unsigned long)nr << WP_COPY_FILL_SHIFT |
	       (nr == window.shared ? WP_COPY_FILL_LAST : 0);
}

/* What mode "auto" permits of @orders, which are not empty. */
static unsigned long wp_copy_permitted(struct vm_fault *vmf,
				       struct folio *folio, unsigned long orders)
{
	const unsigned long permitted =
		wp_copy_whole(vmf, folio, wp_copy_permitted_runs(vmf, orders));

	if (permitted || !wp_copy_folio_crowded(folio))
		return permitted;
	return wp_copy_permitted_dense(vmf, folio, __ffs(orders));
}

/**
 * __wp_copy_orders - see wp_copy_orders()
 * @vmf: the fault.
 * @folio: the old folio, large, or NULL.
 *
 * Context: PTE lock held.
 * Return: bitmap of orders.
 */
unsigned long __wp_copy_orders(struct vm_fault *vmf, struct folio *folio)
{
	struct vm_area_struct *vma = vmf->vma;
	unsigned long orders;

	/*
	 * An unshare fault asks for one page; a forced write into a VMA without
	 * VM_WRITE must not make its neighbours writable.
	 */
	if ((vmf->flags & FAULT_FLAG_UNSHARE) || !(vma->vm_flags & VM_WRITE))
		return 0;
	if (folio ? !folio_test_anon(folio) : !is_zero_pfn(pte_pfn(vmf->orig_pte)))
		return 0;
	orders = thp_vma_allowable_orders(vma, vma->vm_flags, TVA_PAGEFAULT,
					  READ_ONCE(wp_copy_orders_mask));
	if (!orders)
		return 0;

	/*
	 * Userfaultfd wants to see every page. Device memory, and a poisoned
	 * page somewhere in the folio, want care that a single copy has. Shadow
	 * stacks have no clean PTEs.
	 */
	if (!vma_is_anonymous(vma) || userfaultfd_armed(vma) ||
	    (vma->vm_flags & VM_SHADOW_STACK) ||
	    (folio && (folio_is_zone_device(folio) ||
		       folio_test_has_hwpoisoned(folio) ||
		       vma_soft_dirty_enabled(vma))))
		return 0;

	orders = thp_vma_suitable_orders(vma, vmf->address, orders);
	if (orders && folio && READ_ONCE(wp_copy_mode) == WP_COPY_AUTO)
		return wp_copy_permitted(vmf, folio, orders);
	return wp_copy_whole(vmf, folio, orders);
}

/*
 * A folio for one of @orders, the largest that can be had, as a first write
 * would get it, except that it never waits for one: this fault has something
 * cheaper to fall back on. The same for the charge, so that a memcg at its
 * limit reclaims for single pages only, as it always did. Only the lists that a
 * memcg needs for its first large folio are waited for.
 */
static struct folio *wp_copy_alloc(struct vm_fault *vmf, unsigned long orders)
{
	struct vm_area_struct *vma = vmf->vma;
	const gfp_t gfp = (vma_thp_gfp_mask(vma) & ~__GFP_DIRECT_RECLAIM) |
			  __GFP_NOWARN;
	int order = highest_order(orders);

	while (orders) {
		const unsigned long addr = ALIGN_DOWN(vmf->address,
						      PAGE_SIZE << order);
		struct folio *folio = vma_alloc_folio(gfp, order, vma, addr);

		if (!folio)
			goto next;
		if (mem_cgroup_charge(folio, vma->vm_mm, gfp)) {
			count_thp_batch(order, WP_FAULT_FALLBACK_CHARGE, 1);
			folio_put(folio);
			goto next;
		}
		if (folio_memcg_alloc_deferred(folio)) {
			folio_put(folio);
			return NULL;
		}
		folio_throttle_swaprate(folio, gfp);
		return folio;
next:
		count_thp_batch(order, WP_FAULT_FALLBACK, 1);
		order = next_order(&orders, order);
	}
	return NULL;
}

/*
 * Copy to @new from @page on, the faulting page last, which is then in the
 * cache. Not under the PTE lock, so the pages may change meanwhile if they
 * cease to be shared: the caller finds out by its PTEs.
 *
 * Return: 0, or -EHWPOISON if a page cannot be read.
 */
static int wp_copy_pages(struct folio *new, struct page *page,
			 unsigned long addr, struct vm_fault *vmf)
{
	const unsigned int nr = folio_nr_pages(new);
	const unsigned int fault = (vmf->address - addr) >> PAGE_SHIFT;
	unsigned int i;

	for (i = 1; i <= nr; i++) {
		const unsigned int n = (fault + i) & (nr - 1);
		struct page *dst = folio_page(new, n);

		if (copy_mc_user_highpage(dst, page + n, addr + n * PAGE_SIZE,
					  vmf->vma))
			return -EHWPOISON;
		kmsan_copy_page_meta(dst, page + n);
		if (!(i % 16))
			cond_resched();
	}
	return 0;
}

/* PTE for the faulting page, as wp_page_copy() makes it. */
static pte_t wp_copy_mk_written(struct folio *folio, struct vm_area_struct *vma)
{
	const pte_t pte = folio_mk_pte(folio, vma->vm_page_prot);

	return pte_mkwrite(pte_mkdirty(pte_mkyoung(pte)), vma);
}

/* PTE for the others: writable, but clean and not young. */
static pte_t wp_copy_mk_unwritten(struct folio *folio, struct vm_area_struct *vma)
{
	const pte_t pte = folio_mk_pte(folio, vma->vm_page_prot);

	return pte_mkwrite(pte_mksoft_dirty(pte_mkclean(pte_mkold(pte))), vma);
}

/*
 * Map the copy. Only the faulting page is marked young and dirty, it alone is
 * about to be written.
 *
 * From the top down: arm64 looks for a contpte block to fold when the last of
 * its PTEs is set, and finds the rest of it still empty. It would otherwise
 * give the dirty bit of the faulting page to all of them.
 */
static void wp_copy_set_ptes(struct vm_fault *vmf, struct folio *new,
			     pte_t *ptep, unsigned long addr)
{
	const unsigned int nr = folio_nr_pages(new);
	const unsigned int fault = (vmf->address - addr) >> PAGE_SHIFT;
	struct vm_area_struct *vma = vmf->vma;
	struct mm_struct *mm = vma->vm_mm;
	const pte_t pte = wp_copy_mk_written(new, vma);
	const pte_t rest = wp_copy_mk_unwritten(new, vma);
	const unsigned int above = fault + 1;

	if (above < nr)
		set_ptes(mm, addr + above * PAGE_SIZE, ptep + above,
			 pte_advance_pfn(rest, above), nr - above);
	set_ptes(mm, vmf->address, ptep + fault, pte_advance_pfn(pte, fault), 1);
	if (fault)
		set_ptes(mm, addr, ptep, rest, fault);
}

/*
 * Replace the PTEs of the range by those of @new. The old pages are those of
 * @old from number @idx on, or the zero page if that is NULL.
 *
 * Return: false if the range has changed meanwhile; then nothing was done.
 */
static bool wp_copy_map(struct vm_fault *vmf, struct folio *new,
			struct folio *old, unsigned long idx, unsigned long addr)
{
	const unsigned int nr = folio_nr_pages(new);
	struct vm_area_struct *vma = vmf->vma;
	struct mm_struct *mm = vma->vm_mm;
	pte_t *ptep;
	unsigned int i;
	bool ret = false;

	ptep = pte_offset_map_lock(mm, vmf->pmd, addr, &vmf->ptl);
	if (unlikely(!ptep))
		return false;
	/*
	 * The lock was dropped: all of it again, not the faulting PTE only. A
	 * page that was written meanwhile is exclusive and writable now. It
	 * cannot have become shared and read-only again: fork(), mprotect()
	 * and clearing soft-dirty bits wait for the VMA lock or mmap_lock that
	 * we hold, and KSM has to split the folio, on which we hold a reference.
	 */
	if (old) {
		if (!wp_copy_range_shared(vmf, old, idx, ptep, nr))
			goto unlock;
	} else if (!is_zero_pfn(pte_pfn(ptep_get(ptep + ((vmf->address - addr) >>
							PAGE_SHIFT)))) ||
		   !wp_copy_range_zero(ptep, nr) ||
		   check_stable_address_space(mm)) {
		goto unlock;
	}

	flush_cache_range(vma, addr, addr + nr * PAGE_SIZE);
	/*
	 * Clear the PTEs and flush before the new ones are set, so that no CPU
	 * sees the new page while another still reads the old one; and before
	 * the old pages are unmapped, as their other owner may then write to
	 * them in place. get_and_clear_ptes() unfolds what it must.
	 */
	if (old) {
		get_and_clear_ptes(mm, addr, ptep, nr);
	} else {
		for (i = 0; i < nr; i++) {
			pte_t pte = ptep_get(ptep + i);

			if (pte_none(pte))
				continue;
			ksm_might_unmap_zero_page(mm, pte);
			ptep_get_and_clear(mm, addr + i * PAGE_SIZE, ptep + i);
		}
	}
	flush_tlb_range(vma, addr, addr + nr * PAGE_SIZE);

	if (old) {
		/* One reference for each mapping, taken before it is made. */
		folio_ref_add(new, nr - 1);
		folio_set_dirty(new);
		folio_add_new_anon_rmap(new, vma, addr, RMAP_EXCLUSIVE);
		folio_add_lru_vma(new, vma);
		wp_copy_set_ptes(vmf, new, ptep, addr);
		update_mmu_cache_range(vmf, vma, addr, ptep, nr);
		/*
		 * Only now: who finds the old page with one mapping less may
		 * reuse it, see wp_page_copy(). The references go last.
		 */
		folio_remove_rmap_ptes(old, folio_page(old, idx), nr, vma);
	} else {
		map_anon_folio_pte_nopf(new, ptep, vma, addr, false);
		add_mm_counter(mm, MM_ANONPAGES, nr);
	}
	ret = true;
unlock:
	pte_unmap_unlock(ptep, vmf->ptl);
	return ret;
}

/*
 * Copy to a large folio, of the largest of @orders that can be had.
 *
 * Return: how many pages were copied, or zeroed if @old is NULL; 0 if none.
 */
static unsigned int wp_copy_block(struct vm_fault *vmf, struct folio *old,
				  unsigned long orders)
{
	struct folio *new = wp_copy_alloc(vmf, orders);
	struct mmu_notifier_range range;
	unsigned long addr, idx = 0;
	unsigned int nr;
	bool done;

	if (!new)
		return 0;
	nr = folio_nr_pages(new);
	addr = ALIGN_DOWN(vmf->address, nr * PAGE_SIZE);

	if (old) {
		idx = wp_copy_first_page(vmf, old, folio_order(new));
		/*
		 * If it is the faulting page that cannot be read, the single
		 * copy will find out; others are not our business.
		 */
		if (wp_copy_pages(new, folio_page(old, idx), addr, vmf)) {
			folio_put(new);
			return 0;
		}
	} else if (user_alloc_needs_zeroing()) {
		folio_zero_user(new, vmf->address);
	}

	/* The contents are visible before the PTEs are. */
	__folio_mark_uptodate(new);

	mmu_notifier_range_init(&range, MMU_NOTIFY_CLEAR, 0, vmf->vma->vm_mm,
				addr, addr + nr * PAGE_SIZE);
	mmu_notifier_invalidate_range_start(&range);
	done = wp_copy_map(vmf, new, old, idx, addr);
	mmu_notifier_invalidate_range_end(&range);
	if (!done) {
		folio_put(new);
		return 0;
	}

	count_thp_batch(folio_order(new), WP_FAULT_ALLOC, 1);
	if (old)
		trace_mm_wp_fault(vmf->address, folio_order(old), addr, nr, true);
	return nr;
}

/* How a fill allocates and charges: it never waits for memory. */
#define WP_COPY_FILL_GFP	((GFP_HIGHUSER_MOVABLE & ~__GFP_DIRECT_RECLAIM) | \
				 __GFP_NOWARN)

/*
 * The fill: pages that are still shared with the old folio, and what they become.
 * The faulting one is the first of them.
 */
struct wp_copy_fill {
	unsigned int nr;			/* how many there are */
	unsigned int low, high;			/* first and last of the PTEs */
	unsigned char at[WP_COPY_FILL_MAX];	/* PTE, counted from the block's first */
	unsigned short idx[WP_COPY_FILL_MAX];	/* old page, counted in its folio */
	struct page *new[WP_COPY_FILL_MAX];	/* the copy; NULL if there is none */
};

/*
 * Find up to @max pages to be copied among the @nr from @start on: the faulting
 * one and what comes next, at last from @start. Without the lock: all of it is
 * checked again before it is mapped.
 *
 * Return: whether the faulting one can be copied.
 */
static bool wp_copy_fill_find(struct vm_fault *vmf, struct folio *old,
			      unsigned long start, unsigned int nr,
			      unsigned int max, struct wp_copy_fill *fill)
{
	const unsigned int fault = (vmf->address - start) >> PAGE_SHIFT;
	pte_t *ptep = pte_offset_map(vmf->pmd, start);
	unsigned int n, i = fault;

	if (!ptep)
		return false;
	*fill = (struct wp_copy_fill){ .low = fault, .high = fault };
	for (n = 0; n < nr && fill->nr < max; n++, i = i + 1 < nr ? i + 1 : 0) {
		const pte_t pte = ptep_get_lockless(ptep + i);
		unsigned long idx;

		if (!pte_present(pte) || pte_write(pte))
			continue;
		idx = pte_pfn(pte) - folio_pfn(old);
		if (idx >= folio_nr_pages(old) ||
		    PageAnonExclusive(folio_page(old, idx)))
			continue;
		fill->at[fill->nr] = i;
		fill->idx[fill->nr++] = idx;
		fill->low = min(fill->low, i);
		fill->high = max(fill->high, i);
	}
	pte_unmap(ptep);
	return fill->nr && fill->at[0] == fault;
}

/* Allocate the pages: at once, unless the VMA has a policy where each is to be. */
static void wp_copy_fill_alloc(struct vm_fault *vmf, unsigned long start,
			       struct wp_copy_fill *fill)
{
	struct vm_area_struct *vma = vmf->vma;
	unsigned int n;

	if (!IS_ENABLED(CONFIG_NUMA)) {
		alloc_pages_bulk(WP_COPY_FILL_GFP, fill->nr, fill->new);
		return;
	}
	if (!vma_policy(vma)) {
		alloc_pages_bulk_mempolicy(WP_COPY_FILL_GFP, fill->nr, fill->new);
		return;
	}
	for (n = 0; n < fill->nr; n++) {
		struct folio *new = vma_alloc_folio(WP_COPY_FILL_GFP, 0, vma,
						    start + fill->at[n] * PAGE_SIZE);

		if (new)
			fill->new[n] = &new->page;
	}
}

/*
 * Charge the pages, the faulting one first: at the limit it is not to find the
 * last room taken by others. With the first that cannot be had the fill ends.
 */
static void wp_copy_fill_charge(struct mm_struct *mm, struct wp_copy_fill *fill)
{
	unsigned int n, nr = fill->nr;

	for (n = 0; n < nr && fill->new[n]; n++)
		if (mem_cgroup_charge(page_folio(fill->new[n]), mm, WP_COPY_FILL_GFP))
			break;
	fill->nr = n;
	for (; n < nr; n++)
		if (fill->new[n])
			folio_put(page_folio(fill->new[n]));
}

/*
 * Copy the pages, the faulting one last, which is then in the cache. One that
 * cannot be read is left out.
 */
static void wp_copy_fill_copy(struct vm_fault *vmf, struct folio *old,
			      unsigned long start, struct wp_copy_fill *fill)
{
	struct vm_area_struct *vma = vmf->vma;
	unsigned int n = fill->nr;

	while (n--) {
		struct page *page = fill->new[n];
		struct page *from = folio_page(old, fill->idx[n]);

		if (copy_mc_user_highpage(page, from,
					  start + fill->at[n] * PAGE_SIZE, vma)) {
			folio_put(page_folio(page));
			fill->new[n] = NULL;
			continue;
		}
		kmsan_copy_page_meta(page, from);
		/* The contents are visible before the PTE is. */
		__folio_mark_uptodate(page_folio(page));
	}
	if (fill->new[0])
		folio_throttle_swaprate(page_folio(fill->new[0]),
					WP_COPY_FILL_GFP);
}

/*
 * Which of the pages of @fill, as a bitmap, still are as they were found? Then
 * they are what was copied: to be written they had to become exclusive, and from
 * there no way leads back. See wp_copy_map(); and one that is swapped out and in
 * again is shared only while it is written out, which is not begun as long as we
 * hold a reference to its folio.
 */
static unsigned long wp_copy_fill_recheck(struct vm_fault *vmf, struct folio *old,
					  pte_t *ptep,
					  const struct wp_copy_fill *fill)
{
	const pte_t like = wp_copy_like(vmf, old);
	unsigned long todo = 0;
	unsigned int n;

	for (n = 0; n < fill->nr; n++) {
		const unsigned int idx = fill->idx[n];

		if (fill->new[n] &&
		    wp_copy_pte_shared(ptep_get(ptep + fill->at[n]),
				       folio_page(old, idx),
				       pte_advance_pfn(like, idx)))
			todo |= BIT(n);
	}
	return todo;
}

/*
 * Map the copies. What has changed meanwhile is left as it is, and its copy in
 * @fill; if that is the faulting page, all of them.
 *
 * Each step as for a large copy, see wp_copy_map().
 *
 * Return: how many pages were mapped.
 */
static unsigned int wp_copy_fill_map(struct vm_fault *vmf, struct folio *old,
				     unsigned long start,
				     struct wp_copy_fill *fill)
{
	struct vm_area_struct *vma = vmf->vma;
	struct mm_struct *mm = vma->vm_mm;
	unsigned int n, nr, mapped = 0;
	unsigned long todo;
	pte_t *ptep;

	ptep = pte_offset_map_lock(mm, vmf->pmd, start, &vmf->ptl);
	if (unlikely(!ptep))
		return 0;
	todo = wp_copy_fill_recheck(vmf, old, ptep, fill);
	if (!(todo & BIT(0)))
		goto unlock;

	flush_cache_range(vma, start + fill->low * PAGE_SIZE,
			  start + (fill->high + 1) * PAGE_SIZE);
	for (n = 0; n < fill->nr; n++)
		if (todo & BIT(n))
			ptep_get_and_clear(mm, start + fill->at[n] * PAGE_SIZE,
					   ptep + fill->at[n]);
	flush_tlb_range(vma, start + fill->low * PAGE_SIZE,
			start + (fill->high + 1) * PAGE_SIZE);

	for (n = 0; n < fill->nr; n++) {
		const unsigned long addr = start + fill->at[n] * PAGE_SIZE;
		struct folio *new;

		if (!(todo & BIT(n)))
			continue;
		new = page_folio(fill->new[n]);
		folio_set_dirty(new);
		folio_add_new_anon_rmap(new, vma, addr, RMAP_EXCLUSIVE);
		folio_add_lru_vma(new, vma);
		set_pte_at(mm, addr, ptep + fill->at[n],
			   n ? wp_copy_mk_unwritten(new, vma) :
			       wp_copy_mk_written(new, vma));
		update_mmu_cache_range(vmf, vma, addr, ptep + fill->at[n], 1);
		fill->new[n] = NULL;
		mapped++;
	}
	for (n = 0; n < fill->nr; n += nr) {
		const unsigned int idx = fill->idx[n];

		for (nr = 1; n + nr < fill->nr && (todo & BIT(n)) &&
		     (todo & BIT(n + nr)) && fill->idx[n + nr] == idx + nr; nr++)
			;
		if (todo & BIT(n))
			folio_remove_rmap_ptes(old, folio_page(old, idx), nr, vma);
	}
unlock:
	pte_unmap_unlock(ptep, vmf->ptl);
	return mapped;
}

/*
 * Copy to folios of their own up to @max pages that are still shared with @old
 * around the fault.
 *
 * Return: how many pages were copied; 0 if the faulting one was not.
 */
static unsigned int wp_copy_fill(struct vm_fault *vmf, struct folio *old,
				 unsigned int max)
{
	const unsigned long size = PAGE_SIZE << WP_COPY_FILL_ORDER;
	struct vm_area_struct *vma = vmf->vma;
	const unsigned long start = max(ALIGN_DOWN(vmf->address, size),
					vma->vm_start);
	const unsigned long end = min(ALIGN_DOWN(vmf->address, size) + size,
				      vma->vm_end);
	struct mmu_notifier_range range;
	unsigned int n, copied = 0;
	struct wp_copy_fill fill;

	if (!wp_copy_fill_find(vmf, old, start, (end - start) >> PAGE_SHIFT, max,
			       &fill))
		return 0;
	wp_copy_fill_alloc(vmf, start, &fill);
	wp_copy_fill_charge(vma->vm_mm, &fill);
	if (!fill.nr)
		return 0;
	wp_copy_fill_copy(vmf, old, start, &fill);
	if (fill.new[0]) {
		mmu_notifier_range_init(&range, MMU_NOTIFY_CLEAR, 0, vma->vm_mm,
					start + fill.low * PAGE_SIZE,
					start + (fill.high + 1) * PAGE_SIZE);
		mmu_notifier_invalidate_range_start(&range);
		copied = wp_copy_fill_map(vmf, old, start, &fill);
		mmu_notifier_invalidate_range_end(&range);
	}
	for (n = 0; n < fill.nr; n++)
		if (fill.new[n])
			folio_put(page_folio(fill.new[n]));
	if (copied)
		trace_mm_wp_fault(vmf->address, folio_order(old),
				  start + fill.low * PAGE_SIZE, copied, true);
	return copied;
}

/**
 * __wp_copy_large - see wp_copy_large()
 * @vmf: the fault.
 * @orders: bitmap of orders, not empty.
 * @ret: result of the fault.
 *
 * Context: VMA lock or mmap_lock held, no PTE lock, old folio referenced.
 * Return: whether the fault was served.
 */
bool __wp_copy_large(struct vm_fault *vmf, unsigned long orders, vm_fault_t *ret)
{
	struct folio *old = vmf->page ? page_folio(vmf->page) : NULL;
	const unsigned int fill = orders >> WP_COPY_FILL_SHIFT;
	unsigned int copied;

	delayacct_wpcopy_start();
	*ret = vmf_anon_prepare(vmf);
	if (unlikely(*ret)) {
		/* The VMA lock may be gone: this cannot go on elsewhere. */
		if (old)
			folio_put(old);
		delayacct_wpcopy_end();
		return true;
	}

	if (fill)
		copied = wp_copy_fill(vmf, old, fill);
	else
		copied = wp_copy_block(vmf, old, orders);
	if (copied && old) {
		count_thp_batch(folio_order(old), WP_FAULT_COPIED_EXTRA, copied - 1);
		/* Our own reference, and one for each mapping that is gone. */
		free_swap_cache(old);
		folio_put_refs(old, copied + 1);
		if ((orders & WP_COPY_FILL_LAST) && copied == fill)
			khugepaged_hint(vmf->vma, vmf->address);
	}
	/* Else wp_page_copy() begins anew: one copy, counted once. */
	if (copied)
		delayacct_wpcopy_end();
	return copied;
}

#ifdef CONFIG_SYSFS
static const char * const wp_copy_modes[] = {
	[WP_COPY_NEVER] = "never",
	[WP_COPY_AUTO] = "auto",
	[WP_COPY_ALWAYS] = "always",
};

static ssize_t wp_copy_show(struct kobject *kobj, struct kobj_attribute *attr,
			    char *buf)
{
	return thp_batch_mode_show(buf, wp_copy_modes,
				   ARRAY_SIZE(wp_copy_modes),
				   READ_ONCE(wp_copy_mode));
}

static ssize_t wp_copy_store(struct kobject *kobj, struct kobj_attribute *attr,
			     const char *buf, size_t count)
{
	const int mode = sysfs_match_string(wp_copy_modes, buf);

	if (mode < 0)
		return mode;
	WRITE_ONCE(wp_copy_mode, mode);
	return count;
}

static struct kobj_attribute wp_copy_attr = __ATTR_RW(wp_copy);

/* Have @set take the number that was written, if it is @min to @max. */
static ssize_t wp_copy_store_number(const char *buf, size_t count,
				    unsigned int min, unsigned int max,
				    void (*set)(unsigned int))
{
	unsigned int val;
	int err = kstrtouint(buf, 0, &val);

	if (err)
		return err;
	if (val < min || val > max)
		return -EINVAL;
	set(val);
	return count;
}

static ssize_t wp_copy_max_kb_show(struct kobject *kobj,
				   struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%u\n", READ_ONCE(wp_copy_max_kb));
}

static ssize_t wp_copy_max_kb_store(struct kobject *kobj,
				    struct kobj_attribute *attr,
				    const char *buf, size_t count)
{
	return wp_copy_store_number(buf, count, 0, HPAGE_PMD_SIZE / SZ_1K,
				    wp_copy_set_max);
}

static struct kobj_attribute wp_copy_max_kb_attr = __ATTR_RW(wp_copy_max_kb);

static ssize_t wp_copy_dense_percent_show(struct kobject *kobj,
					  struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%u\n", READ_ONCE(wp_copy_dense_percent));
}

static ssize_t wp_copy_dense_percent_store(struct kobject *kobj,
					   struct kobj_attribute *attr,
					   const char *buf, size_t count)
{
	return wp_copy_store_number(buf, count, 50, 100, wp_copy_set_dense);
}

static struct kobj_attribute wp_copy_dense_percent_attr =
	__ATTR_RW(wp_copy_dense_percent);

static int __init wp_copy_init_sysfs(void)
{
	int err = thp_batch_create_knob(&wp_copy_attr);

	if (!err)
		err = thp_batch_create_knob(&wp_copy_max_kb_attr);
	if (!err)
		err = thp_batch_create_knob(&wp_copy_dense_percent_attr);
	return err;
}
#else
static inline int wp_copy_init_sysfs(void)
{
	return 0;
}
#endif /* CONFIG_SYSFS */

static int __init wp_copy_init(void)
{
	wp_copy_set_max(64);
	wp_copy_set_dense(WP_COPY_DENSE_PERCENT);
	return wp_copy_init_sysfs();
}
late_initcall(wp_copy_init);

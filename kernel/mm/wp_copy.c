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
static unsigned long wp_copy_orders_mask __read_mostly;

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

/* Where the policy reads from: one page table, and its neighbours. */
struct wp_copy_view {
	struct vm_fault *vmf;
	pte_t *table;		/* first PTE of the locked page table */
	unsigned long base;	/* number of the page that it maps */
	unsigned long start;	/* pages of it that are in the VMA, from here */
	unsigned long nr;	/* and that many */
};

static __always_inline enum wp_copy_state wp_copy_pte_state(pte_t pte)
{
	if (!pte_write(pte) || !pte_present(pte))
		return WP_COPY_OTHER;
	return pte_dirty(pte) ? WP_COPY_WRITTEN : WP_COPY_UNWRITTEN;
}

/*
 * A sequential run does not end with the page table. Look into the one before
 * or behind, without its lock: this is evidence for a guess, nothing that is
 * acted upon. Only on the way to a large copy, so mapping it once a page is
 * good enough.
 */
static noinline enum wp_copy_state
wp_copy_state_beyond(struct vm_fault *vmf, unsigned long addr)
{
	const struct vm_area_struct *vma = vmf->vma;
	pte_t *ptep, pte;

	if (addr - vma->vm_start >= vma->vm_end - vma->vm_start ||
	    ((addr ^ vmf->address) & PUD_MASK))
		return WP_COPY_OTHER;
	/* Within what one PUD maps, PMDs are neighbours as addresses are. */
	ptep = pte_offset_map(vmf->pmd + ((long)(addr >> PMD_SHIFT) -
					  (long)(vmf->address >> PMD_SHIFT)), addr);
	if (!ptep)
		return WP_COPY_OTHER;
	pte = ptep_get_lockless(ptep);
	pte_unmap(ptep);
	return wp_copy_pte_state(pte);
}

static __always_inline enum wp_copy_state wp_copy_state(const void *ctx,
							unsigned long page)
{
	const struct wp_copy_view *view = ctx;

	if (unlikely(page - view->start >= view->nr))
		return wp_copy_state_beyond(view->vmf, page << PAGE_SHIFT);
	return wp_copy_pte_state(ptep_get(view->table + (page - view->base)));
}

/*
 * Are these @nr PTEs, from @ptep on, read-only mappings of consecutive pages of
 * @folio, @page the first, that differ from @like only in what a batch may
 * differ, and none of them exclusive?
 *
 * Read-only is not enough: an exclusive page must be reused, as it may be
 * pinned, and a mixture of both is normal (pages that fork had to copy early,
 * that came back from swap, or that mprotect() left read-only). Neither needs a
 * run of read-only PTEs be of one folio, nor address and folio be aligned to
 * each other: mremap() sees to that. Protnone, userfaultfd-wp and the like show
 * as a difference to @like, which has none of them.
 *
 * Context: PTE lock held.
 */
static bool wp_copy_range_shared(struct folio *folio, struct page *page,
				 pte_t *ptep, pte_t like, unsigned int nr)
{
	pte_t pte = ptep_get(ptep);
	unsigned int i;

	if (!pte_present(pte) || pte_pfn(pte) != page_to_pfn(page))
		return false;
	like = pfn_pte(pte_pfn(pte), pte_pgprot(like));
	if (!pte_same(__pte_batch_clear_ignored(pte, FPB_RESPECT_WRITE),
		      __pte_batch_clear_ignored(like, FPB_RESPECT_WRITE)))
		return false;
	if (folio_pte_batch_flags(folio, NULL, ptep, &pte, nr,
				  FPB_RESPECT_WRITE) != nr)
		return false;
	for (i = 0; i < nr; i++)
		if (PageAnonExclusive(page + i))
			return false;
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
 * The page of @folio at the start of the block of @order, or NULL if the block
 * is not within the folio.
 */
static struct page *wp_copy_first_page(struct vm_fault *vmf, struct folio *folio,
				       unsigned int order)
{
	const unsigned long below = (vmf->address >> PAGE_SHIFT) &
				    ((1UL << order) - 1);
	const unsigned long idx = folio_page_idx(folio, vmf->page);

	if (idx < below || idx - below + (1UL << order) > folio_nr_pages(folio))
		return NULL;
	return folio_page(folio, idx - below);
}

/*
 * Read the window of the dense rule around @page. Pages that are not in this
 * page table and VMA are neither written nor unwritten.
 */
static void wp_copy_read_window(const struct wp_copy_view *view,
				unsigned long page, u64 *written, u64 *unwritten)
{
	const unsigned long base = page & -(unsigned long)WP_COPY_WINDOW;
	const unsigned long from = max(base, view->start);
	const unsigned long to = min(base + WP_COPY_WINDOW,
				     view->start + view->nr);
	const pte_t *ptep = view->table + (from - view->base);
	u64 bit = 1ULL << (from - base);
	unsigned long i;

	*written = 0;
	*unwritten = 0;
	for (i = from; i < to; i++, bit <<= 1) {
		enum wp_copy_state state;

		state = wp_copy_pte_state(ptep_get((pte_t *)ptep++));
		if (state == WP_COPY_WRITTEN)
			*written |= bit;
		else if (state == WP_COPY_UNWRITTEN)
			*unwritten |= bit;
	}
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
	struct page *page;

	if (!folio)
		return wp_copy_range_zero(ptep, nr);
	page = wp_copy_first_page(vmf, folio, order);
	return page && wp_copy_range_shared(folio, page, ptep, vmf->orig_pte, nr);
}

static __always_inline void wp_copy_view_init(struct wp_copy_view *view,
					      struct vm_fault *vmf)
{
	struct vm_area_struct *vma = vmf->vma;
	const unsigned long page = vmf->address >> PAGE_SHIFT;

	view->vmf = vmf;
	view->table = vmf->pte - pte_index(vmf->address);
	view->base = page - pte_index(vmf->address);
	view->start = max(view->base, vma->vm_start >> PAGE_SHIFT);
	view->nr = min(view->base + PTRS_PER_PTE, vma->vm_end >> PAGE_SHIFT) -
		   view->start;
}

static bool wp_copy_folio_crowded(struct folio *folio)
{
	return wp_copy_crowded(folio_large_mapcount(folio),
			       folio_nr_pages(folio));
}

/**
 * __wp_copy_hint - can the policy permit anything?
 * @vmf: the fault.
 * @folio: the old folio, which is large.
 *
 * Nearly all faults of a sparse writer end here, so this reads little: the
 * mapcount of the folio for the dense rule, and what the smallest block needs
 * for the run rule, up to the first page that is not written. No larger block
 * can do with less, unless the fault is deep inside of it, and then it is not
 * one of a sequential run.
 *
 * Context: PTE lock held.
 * Return: false if the copy is to be a single page.
 */
bool __wp_copy_hint(struct vm_fault *vmf, struct folio *folio)
{
	const unsigned int nr = 1U << WP_COPY_MIN_ORDER;
	const unsigned int idx = pte_index(vmf->address) & ~(nr - 1);
	pte_t *first = vmf->pte - (pte_index(vmf->address) - idx);
	unsigned int i;

	if (wp_copy_folio_crowded(folio))
		return true;

	if (unlikely(idx < 2 * nr)) {
		/* The run may go on in the next page table: ask for one page. */
		if (idx ? wp_copy_pte_state(ptep_get(first - 1)) == WP_COPY_WRITTEN :
			  wp_copy_state_beyond(vmf, (vmf->address & PMD_MASK) - 1) ==
			  WP_COPY_WRITTEN)
			return true;
	} else {
		for (i = 1; wp_copy_pte_state(ptep_get(first - i)) == WP_COPY_WRITTEN; i++)
			if (i == 2 * nr)
				return true;
	}

	first += nr;
	if (unlikely(idx + 3 * nr > PTRS_PER_PTE)) {
		if (idx + nr < PTRS_PER_PTE ?
			  wp_copy_pte_state(ptep_get(first)) == WP_COPY_WRITTEN :
			  wp_copy_state_beyond(vmf, (vmf->address & PMD_MASK) + PMD_SIZE) ==
			  WP_COPY_WRITTEN)
			return true;
	} else {
		for (i = 1; wp_copy_pte_state(ptep_get(first++)) == WP_COPY_WRITTEN; i++)
			if (i == 2 * nr)
				return true;
	}
	return false;
}

/* What mode "auto" permits of @orders, which are not empty. */
static unsigned long wp_copy_permitted(struct vm_fault *vmf,
				       struct folio *folio, unsigned long orders)
{
	const unsigned long page = vmf->address >> PAGE_SHIFT;
	const unsigned int order = __ffs(orders);
	struct wp_copy_view view;
	unsigned long permitted;
	u64 written, unwritten;

	wp_copy_view_init(&view, vmf);
	permitted = wp_copy_runs(orders, page, wp_copy_state, &view);
	if (permitted || !wp_copy_folio_crowded(folio))
		return permitted;

	wp_copy_read_window(&view, page, &written, &unwritten);
	if (order <= WP_COPY_FILL_ORDER &&
	    wp_copy_dense(written, unwritten, page, order) &&
	    wp_copy_block_shared(vmf, folio, order))
		return BIT(order);
	if ((READ_ONCE(wp_copy_orders_mask) & BIT(WP_COPY_FILL_ORDER)) &&
	    wp_copy_dense(written, unwritten, page, WP_COPY_FILL_ORDER))
		return WP_COPY_FILL;
	return 0;
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
		orders = wp_copy_permitted(vmf, folio, orders);

	/*
	 * Drop what the folio's edge or another mapping forbids. If a block
	 * will do, then so will all the smaller ones within it.
	 */
	while (orders && orders != WP_COPY_FILL &&
	       !wp_copy_block_shared(vmf, folio, highest_order(orders)))
		orders &= ~BIT(highest_order(orders));
	return orders;
}

/*
 * A folio for one of @orders, the largest that can be had, as a first write
 * would get it, except that it never waits for one: this fault has something
 * cheaper to fall back on. The same for the charge, so that a memcg at its
 * limit reclaims for single pages only, as it always did.
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
static pte_t wp_copy_pte_written(struct folio *folio, struct vm_area_struct *vma)
{
	const pte_t pte = folio_mk_pte(folio, vma->vm_page_prot);

	return pte_mkwrite(pte_mkdirty(pte_mkyoung(pte)), vma);
}

/* PTE for the others: writable, but clean and not young. */
static pte_t wp_copy_pte_unwritten(struct folio *folio, struct vm_area_struct *vma)
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
	const pte_t pte = wp_copy_pte_written(new, vma);
	const pte_t rest = wp_copy_pte_unwritten(new, vma);
	const unsigned int above = fault + 1;

	if (above < nr)
		set_ptes(mm, addr + above * PAGE_SIZE, ptep + above,
			 pte_advance_pfn(rest, above), nr - above);
	set_ptes(mm, vmf->address, ptep + fault, pte_advance_pfn(pte, fault), 1);
	if (fault)
		set_ptes(mm, addr, ptep, rest, fault);
}

/*
 * Replace the PTEs of the range by those of @new. @page is the first one of the
 * old pages, NULL for the zero page.
 *
 * Return: false if the range has changed meanwhile; then nothing was done.
 */
static bool wp_copy_map(struct vm_fault *vmf, struct folio *new,
			struct folio *old, struct page *page, unsigned long addr)
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
		if (!wp_copy_range_shared(old, page, ptep, vmf->orig_pte, nr))
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
		folio_remove_rmap_ptes(old, page, nr, vma);
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
	struct page *page = NULL;
	unsigned long addr;
	unsigned int nr;
	bool done;

	if (!new)
		return 0;
	nr = folio_nr_pages(new);
	addr = ALIGN_DOWN(vmf->address, nr * PAGE_SIZE);

	if (old) {
		page = wp_copy_first_page(vmf, old, folio_order(new));
		/*
		 * If it is the faulting page that cannot be read, the single
		 * copy will find out; others are not our business.
		 */
		if (wp_copy_pages(new, page, addr, vmf)) {
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
	done = wp_copy_map(vmf, new, old, page, addr);
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

/* A page of the fill: what it was and what it becomes. */
struct wp_copy_fill {
	struct page *page;
	struct folio *new;
};

/*
 * Does @pte still map @page of the old folio as @like maps its page, read-only
 * and not exclusive?
 */
static bool wp_copy_pte_shared(pte_t pte, struct page *page, pte_t like)
{
	if (!pte_present(pte) || pte_pfn(pte) != page_to_pfn(page) ||
	    PageAnonExclusive(page))
		return false;
	like = pfn_pte(pte_pfn(pte), pte_pgprot(like));
	return pte_same(__pte_batch_clear_ignored(pte, FPB_RESPECT_WRITE),
			__pte_batch_clear_ignored(like, FPB_RESPECT_WRITE));
}

/*
 * Copy to folios of their own what is still shared with @old around the fault.
 * A page that cannot be had is left out, but for the faulting one.
 *
 * Return: how many pages were copied; 0 if the faulting one was not.
 */
static unsigned int wp_copy_fill(struct vm_fault *vmf, struct folio *old)
{
	const gfp_t gfp = (GFP_HIGHUSER_MOVABLE & ~__GFP_DIRECT_RECLAIM) |
			  __GFP_NOWARN;
	const unsigned long size = PAGE_SIZE << WP_COPY_FILL_ORDER;
	struct wp_copy_fill fill[1 << WP_COPY_FILL_ORDER] = { };
	struct vm_area_struct *vma = vmf->vma;
	struct mm_struct *mm = vma->vm_mm;
	const unsigned long start = max(ALIGN_DOWN(vmf->address, size),
					vma->vm_start);
	const unsigned long end = min(ALIGN_DOWN(vmf->address, size) + size,
				      vma->vm_end);
	const unsigned int nr = (end - start) >> PAGE_SHIFT;
	const unsigned int fault = (vmf->address - start) >> PAGE_SHIFT;
	struct mmu_notifier_range range;
	unsigned int i, copied = 0;
	unsigned long idx;
	pte_t *ptep, pte;

	/* Without the lock: what to try. All of it is checked again below. */
	ptep = pte_offset_map(vmf->pmd, start);
	if (!ptep)
		return 0;
	for (i = 0; i < nr; i++) {
		pte = ptep_get_lockless(ptep + i);
		if (!pte_present(pte) || pte_write(pte))
			continue;
		idx = pte_pfn(pte) - folio_pfn(old);
		if (idx < folio_nr_pages(old))
			fill[i].page = folio_page(old, idx);
	}
	pte_unmap(ptep);

	for (i = 0; i < nr; i++) {
		const unsigned long addr = start + i * PAGE_SIZE;
		struct folio *new;

		if (!fill[i].page)
			continue;
		new = vma_alloc_folio(gfp, 0, vma, addr);
		if (!new)
			continue;
		if (mem_cgroup_charge(new, mm, gfp) ||
		    copy_mc_user_highpage(&new->page, fill[i].page, addr, vma)) {
			folio_put(new);
			continue;
		}
		folio_throttle_swaprate(new, gfp);
		kmsan_copy_page_meta(&new->page, fill[i].page);
		__folio_mark_uptodate(new);
		fill[i].new = new;
	}
	if (!fill[fault].new)
		goto put;

	/* From here on as for a large copy, see wp_copy_map(). */
	mmu_notifier_range_init(&range, MMU_NOTIFY_CLEAR, 0, mm, start, end);
	mmu_notifier_invalidate_range_start(&range);
	ptep = pte_offset_map_lock(mm, vmf->pmd, start, &vmf->ptl);
	if (!ptep)
		goto end;
	if (!wp_copy_pte_shared(ptep_get(ptep + fault), fill[fault].page,
				vmf->orig_pte))
		goto unlock;
	flush_cache_range(vma, start, end);
	for (i = 0; i < nr; i++) {
		if (!fill[i].new)
			continue;
		if (!wp_copy_pte_shared(ptep_get(ptep + i), fill[i].page,
					vmf->orig_pte)) {
			folio_put(fill[i].new);
			fill[i].new = NULL;
			continue;
		}
		ptep_get_and_clear(mm, start + i * PAGE_SIZE, ptep + i);
	}
	flush_tlb_range(vma, start, end);
	for (i = 0; i < nr; i++) {
		const unsigned long addr = start + i * PAGE_SIZE;
		struct folio *new = fill[i].new;

		if (!new)
			continue;
		folio_set_dirty(new);
		folio_add_new_anon_rmap(new, vma, addr, RMAP_EXCLUSIVE);
		folio_add_lru_vma(new, vma);
		set_pte_at(mm, addr, ptep + i,
			   i == fault ? wp_copy_pte_written(new, vma) :
					wp_copy_pte_unwritten(new, vma));
		update_mmu_cache_range(vmf, vma, addr, ptep + i, 1);
		folio_remove_rmap_pte(old, fill[i].page, vma);
		fill[i].new = NULL;
		copied++;
	}
unlock:
	pte_unmap_unlock(ptep, vmf->ptl);
end:
	mmu_notifier_invalidate_range_end(&range);
put:
	for (i = 0; i < nr; i++)
		if (fill[i].new)
			folio_put(fill[i].new);
	if (copied)
		trace_mm_wp_fault(vmf->address, folio_order(old), start, copied,
				  true);
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

	if (orders == WP_COPY_FILL)
		copied = wp_copy_fill(vmf, old);
	else
		copied = wp_copy_block(vmf, old, orders);
	if (copied && old) {
		count_thp_batch(folio_order(old), WP_FAULT_COPIED_EXTRA, copied - 1);
		/* Our own reference, and one for each mapping that is gone. */
		free_swap_cache(old);
		folio_put_refs(old, copied + 1);
	}
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

static ssize_t wp_copy_max_kb_show(struct kobject *kobj,
				   struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%u\n", READ_ONCE(wp_copy_max_kb));
}

static ssize_t wp_copy_max_kb_store(struct kobject *kobj,
				    struct kobj_attribute *attr,
				    const char *buf, size_t count)
{
	unsigned int kb;
	int err = kstrtouint(buf, 0, &kb);

	if (err)
		return err;
	if (kb > HPAGE_PMD_SIZE / SZ_1K)
		return -EINVAL;
	wp_copy_set_max(kb);
	return count;
}

static struct kobj_attribute wp_copy_max_kb_attr = __ATTR_RW(wp_copy_max_kb);

static int __init wp_copy_init_sysfs(void)
{
	int err = thp_batch_create_knob(&wp_copy_attr);

	return err ? err : thp_batch_create_knob(&wp_copy_max_kb_attr);
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
	return wp_copy_init_sysfs();
}
late_initcall(wp_copy_init);

// SPDX-License-Identifier: GPL-2.0
/*
 * Write faults that reuse an exclusive large folio.
 *
 * After fork() every PTE of the parent is read-only. Once the child is gone
 * the parent's folios are exclusive again, and each write makes one PTE
 * writable. For a large folio the fault knows more than that: the whole folio
 * was proven exclusive. Make other PTEs of it writable as well.
 *
 * Which ones is the policy in wp_reuse.h. It keeps no state but the PTEs.
 */
#include <linux/mm.h>
#include <linux/rmap.h>
#include <linux/userfaultfd_k.h>

#include "internal.h"
#include "thp_batch.h"
#include "wp_reuse.h"

#define CREATE_TRACE_POINTS
#include <trace/events/wp_fault.h>

enum wp_reuse_mode {
	WP_REUSE_MODE_NEVER,
	WP_REUSE_MODE_BLOCK,
	WP_REUSE_MODE_WHOLE,
	WP_REUSE_MODE_ADAPTIVE,
};

static const char * const wp_reuse_mode_names[] = {
	[WP_REUSE_MODE_NEVER]	= "never",
	[WP_REUSE_MODE_BLOCK]	= "block",
	[WP_REUSE_MODE_WHOLE]	= "whole",
	[WP_REUSE_MODE_ADAPTIVE]	= "adaptive",
};

static enum wp_reuse_mode wp_reuse_mode __read_mostly = WP_REUSE_MODE_ADAPTIVE;

/*
 * The bits that must agree with the faulting PTE: all but those by which
 * pages that are alike otherwise may differ. Being read-only is among them.
 */
static __always_inline pte_t wp_reuse_comparable(pte_t pte)
{
	return pte_clear_soft_dirty(pte_mkclean(pte_mkold(pte)));
}

/*
 * What the PTE looks like that is @first from the faulting one. A PTE of 64 bits
 * cannot go back by pte_advance_pfn() where long has 32.
 */
static __always_inline pte_t wp_reuse_want(struct vm_fault *vmf, int first)
{
	const pte_t pte = wp_reuse_comparable(vmf->orig_pte);

	if (sizeof(long) < sizeof(pte_t))
		return pfn_pte(page_to_pfn(vmf->page + first), pte_pgprot(pte));
	return pte_advance_pfn(pte, first);
}

/*
 * Take pages for this mm alone. In a folio that was not proven exclusive the
 * flags must be there already; the pages are shared otherwise.
 */
static __always_inline bool wp_reuse_claim(struct page *page, unsigned int nr,
					   const bool exclusive)
{
	unsigned int i;

	for (i = 0; i < nr; i++) {
		if (exclusive)
			SetPageAnonExclusive(page + i);
		else if (!PageAnonExclusive(page + i))
			return false;
	}
	return true;
}

/**
 * wp_reuse_run - make a run of equal PTEs writable
 * @vma: the VMA, writable.
 * @addr: address of the first PTE.
 * @ptep: the first PTE.
 * @pte: its value: present and read-only.
 * @page: the page it maps.
 * @max: PTEs to consider, at least one; all in the VMA, the page table and,
 *	as far as they match, in the folio of @page.
 * @exclusive: the folio was proven exclusive to this mm.
 *
 * The run ends where a PTE differs from @pte in more than the PFN, or at a
 * page that is not exclusive. Young and dirty bits stay as they are, for each
 * PTE: PTEs are changed one by one, or by the block that arm64 folds into one.
 *
 * Nothing needs to be flushed: the PTEs allow more than before. Another
 * thread that still has a read-only translation takes a spurious fault.
 *
 * Context: PTE lock held.
 * Return: the number of PTEs made writable.
 */
static __always_inline unsigned int
wp_reuse_run(struct vm_area_struct *vma, unsigned long addr, pte_t *ptep,
	     pte_t pte, struct page *page, unsigned int max, const bool exclusive)
{
	pte_t new = pte_mkwrite(pte, vma);
	unsigned int done = 0;

	do {
		unsigned int nr = pte_batch_hint(ptep, pte);
		pte_t old;

		if (nr > 1)
			nr = min(nr, max - done);
		if (!wp_reuse_claim(page, nr, exclusive))
			break;

		old = modify_prot_start_ptes(vma, addr, ptep, nr);
		/* The hardware may have set the accessed bit meanwhile. */
		if (likely(pte_same(old, pte)))
			modify_prot_commit_ptes(vma, addr, ptep, old, new, nr);
		else
			modify_prot_commit_ptes(vma, addr, ptep, old,
						pte_mkwrite(old, vma), nr);
		done += nr;
		addr += nr * PAGE_SIZE;
		ptep += nr;
		page += nr;
		pte = pte_advance_pfn(pte, nr);
		new = pte_advance_pfn(new, nr);
	} while (done < max && pte_same(ptep_get(ptep), pte));

	return done;
}

/**
 * wp_reuse_map - make PTEs of the faulting PTE's folio writable
 * @vmf: the write fault; @vmf->pte maps @vmf->page read-only.
 * @first: the first PTE, relative to @vmf->pte.
 * @nr: PTEs to consider; within the VMA, the page table and the folio.
 * @exclusive: the folio was proven exclusive to this mm; otherwise only pages
 *	that are marked so are taken.
 *
 * Takes those PTEs that map the page of the folio that belongs at their
 * address, read-only, with the protection of the faulting PTE: not what was
 * unmapped, replaced or moved there, and nothing that userfaultfd or
 * soft-dirty tracking wants to see written.
 *
 * Context: PTE lock held, VMA locked.
 * Return: the number of PTEs made writable.
 */
static unsigned int wp_reuse_map(struct vm_fault *vmf, int first,
				 unsigned int nr, bool exclusive)
{
	struct vm_area_struct *vma = vmf->vma;
	unsigned long addr = vmf->address + first * (long)PAGE_SIZE;
	const bool soft_dirty = vma_soft_dirty_enabled(vma);
	struct page *page = vmf->page + first;
	pte_t want = wp_reuse_want(vmf, first);
	pte_t *ptep = vmf->pte + first;
	unsigned int mapped = 0, step;

	lazy_mmu_mode_enable();
	for (; nr; nr -= step) {
		const pte_t pte = ptep_get(ptep);

		step = 0;
		if (pte_same(wp_reuse_comparable(pte), want) &&
		    !(soft_dirty && !pte_soft_dirty(pte))) {
			/* Two constants, two tight loops. */
			if (exclusive)
				step = wp_reuse_run(vma, addr, ptep, pte, page, nr, true);
			else
				step = wp_reuse_run(vma, addr, ptep, pte, page, nr, false);
			if (step)
				update_mmu_cache_range(vmf, vma, addr, ptep, step);
			mapped += step;
		}
		if (!step)
			step = min(pte_batch_hint(ptep, pte), nr);

		addr += step * PAGE_SIZE;
		ptep += step;
		page += step;
		want = pte_advance_pfn(want, step);
	}
	lazy_mmu_mode_disable();

	return mapped;
}

static inline bool wp_reuse_writable(pte_t pte)
{
	return pte_present(pte) && pte_write(pte);
}

/*
 * Length of the run of writable PTEs beside @ptep, upwards (@dir 1) or
 * downwards (-1), at most @max. Looks at powers of two only: a guess that
 * is right for runs that faults made writable, and cheap.
 */
static unsigned int wp_reuse_run_length(pte_t *ptep, int dir, unsigned int max)
{
	unsigned int n, run = 0;

	max = min(max, WP_REUSE_MOST);
	for (n = 1; n <= max; n *= 2) {
		if (!wp_reuse_writable(ptep_get(ptep + dir * (int)n)))
			break;
		run = n;
	}
	return run;
}

/*
 * The same where the faulting PTE is the first or last one of its page table.
 * The neighbouring table is read without its lock: it is a guess, no more.
 */
static unsigned int wp_reuse_run_beyond(struct vm_fault *vmf, int dir,
					unsigned long max)
{
	unsigned long addr = vmf->address + dir * (long)PAGE_SIZE;
	unsigned int run;
	pte_t *ptep;

	/* A neighbour in another PMD table is not worth a walk. */
	if (!max || ((addr ^ vmf->address) & PUD_MASK))
		return 0;

	ptep = pte_offset_map(vmf->pmd + dir, addr);
	if (!ptep)
		return 0;
	run = wp_reuse_run_length(ptep - dir, dir, min(max, PTRS_PER_PTE));
	pte_unmap(ptep);
	return run;
}

/*
 * Look around the faulting PTE: at the runs beside it and at the mark that
 * the first fault on the folio left. Pages of the folio that are mapped no
 * longer are a mark as well: most likely they were copied away by writes, when
 * the folio was shared. PTE lock held.
 */
static void wp_reuse_look(struct vm_fault *vmf, const struct folio *folio,
			  struct wp_reuse_view *view)
{
	const unsigned long below = (vmf->address - vmf->vma->vm_start) >> PAGE_SHIFT;
	const unsigned long above = ((vmf->vma->vm_end - vmf->address) >> PAGE_SHIFT) - 1;
	const unsigned int last = PTRS_PER_PTE - 1;
	const unsigned int pos = view->pos;

	view->again = folio_large_mapcount(folio) < folio_large_nr_pages(folio) ||
		      wp_reuse_writable(ptep_get(vmf->pte - (pos - view->lo)));
	view->above = 0;
	if (pos)
		view->below = wp_reuse_run_length(vmf->pte, -1, min(below, pos));
	else
		view->below = wp_reuse_run_beyond(vmf, -1, below);
	if (view->below)
		return;
	if (pos < last)
		view->above = wp_reuse_run_length(vmf->pte, 1, min(above, last - pos));
	else
		view->above = wp_reuse_run_beyond(vmf, 1, above);
}

/*
 * The PTEs a fault may change: those of the folio in its VMA and page table.
 */
static __always_inline struct wp_reuse_view
wp_reuse_reach(struct vm_fault *vmf, struct folio *folio, unsigned int order)
{
	const struct vm_area_struct *vma = vmf->vma;
	const unsigned long idx = folio_page_idx(folio, vmf->page);
	const unsigned int pos = pte_index(vmf->address);
	unsigned long below, above;

	below = min(idx, (vmf->address - vma->vm_start) >> PAGE_SHIFT);
	above = min((1UL << order) - idx,
		    (vma->vm_end - vmf->address) >> PAGE_SHIFT);

	return (struct wp_reuse_view){
		.lo = pos - min(below, pos),
		.hi = pos + min(above, PTRS_PER_PTE - pos),
		.pos = pos,
	};
}

/**
 * wp_reuse_unshare - mark the pages around an unshared one exclusive as well
 * @vmf: a fault that unshares @vmf->page, mapped by @vmf->pte, for a read-only
 *	pin.
 * @folio: the large anonymous folio, just proven exclusive to this mm.
 *
 * The pin that follows holds a reference to the folio, so that nobody can prove
 * it exclusive any more until the pin is gone: all other pages would be copied
 * when they are pinned or written to. Mark them now, as many as are mapped
 * here. No PTE changes.
 *
 * Context: PTE lock held on entry and exit, VMA locked for reading.
 */
void wp_reuse_unshare(struct vm_fault *vmf, struct folio *folio)
{
	const struct wp_reuse_view view =
		wp_reuse_reach(vmf, folio, folio_large_order(folio));
	struct page *page;
	unsigned int i;
	pte_t *ptep;

	if (READ_ONCE(wp_reuse_mode) == WP_REUSE_MODE_NEVER)
		return;

	ptep = vmf->pte - (view.pos - view.lo);
	page = vmf->page - (view.pos - view.lo);
	for (i = 0; i < view.hi - view.lo; i++) {
		const pte_t pte = ptep_get(ptep + i);

		if (pte_present(pte) && pte_pfn(pte) == page_to_pfn(page + i))
			SetPageAnonExclusive(page + i);
	}
}

/*
 * wp_reuse_around() once it is known to be wanted: apart, so that a fault for
 * which it is not sets up no frame for it.
 */
static noinline void __wp_reuse_around(struct vm_fault *vmf, struct folio *folio,
				       const enum wp_reuse_mode mode,
				       bool exclusive)
{
	const unsigned int order = folio_large_order(folio);
	struct wp_reuse_view view = wp_reuse_reach(vmf, folio, order);
	struct wp_reuse_window window;
	unsigned int mapped = 0;

	switch (mode) {
	case WP_REUSE_MODE_BLOCK:
		window = wp_reuse_block(&view, WP_REUSE_BLOCK);
		break;
	case WP_REUSE_MODE_WHOLE:
		window = wp_reuse_clamp(&view, view.lo, view.hi);
		break;
	default:
		wp_reuse_look(vmf, folio, &view);
		window = wp_reuse_adaptive(&view);
		/* The mark for the next fault; no matter if it can't be set. */
		if (!view.again && view.lo < window.first)
			mapped = wp_reuse_map(vmf, (int)view.lo - view.pos, 1,
					      exclusive);
	}

	if (window.nr == 1)
		mapped++;
	else
		mapped += wp_reuse_map(vmf, (int)window.first - view.pos,
				       window.nr, exclusive);

	count_thp_batch(order, WP_FAULT_REUSE, 1);
	count_thp_batch(order, WP_FAULT_REUSE_PTES, mapped);
	trace_mm_wp_fault(vmf->address, order, vmf->address
			  + ((long)window.first - view.pos) * PAGE_SIZE,
			  mapped, false);
}

/**
 * wp_reuse_around - make PTEs around a reused one writable as well
 * @vmf: a write fault that reuses its page: @vmf->pte is @vmf->orig_pte, maps
 *	@vmf->page of @folio and is not writable.
 * @folio: the large anonymous folio.
 * @exclusive: the whole folio was just proven exclusive to this mm. If not,
 *	only @vmf->page is known to be.
 *
 * The faulting PTE itself is left to wp_page_reuse(), which marks it young
 * and dirty; it may already be writable then.
 *
 * Context: PTE lock held on entry and exit, VMA locked for reading.
 */
void wp_reuse_around(struct vm_fault *vmf, struct folio *folio, bool exclusive)
{
	const enum wp_reuse_mode mode = READ_ONCE(wp_reuse_mode);

	/*
	 * A forced write by a debugger: the VMA stays read-only. On a shadow
	 * stack what is writable is dirty, too.
	 */
	if (mode == WP_REUSE_MODE_NEVER ||
	    (vmf->vma->vm_flags & (VM_WRITE | VM_SHADOW_STACK)) != VM_WRITE)
		return;
	__wp_reuse_around(vmf, folio, mode, exclusive);
}

#ifdef CONFIG_SYSFS
static ssize_t wp_reuse_show(struct kobject *kobj, struct kobj_attribute *attr,
			     char *buf)
{
	return thp_batch_mode_show(buf, wp_reuse_mode_names,
				   ARRAY_SIZE(wp_reuse_mode_names),
				   READ_ONCE(wp_reuse_mode));
}

static ssize_t wp_reuse_store(struct kobject *kobj, struct kobj_attribute *attr,
			      const char *buf, size_t count)
{
	const int mode = sysfs_match_string(wp_reuse_mode_names, buf);

	if (mode < 0)
		return mode;
	WRITE_ONCE(wp_reuse_mode, mode);
	return count;
}

static struct kobj_attribute wp_reuse_attr = __ATTR_RW(wp_reuse);

static int __init wp_reuse_init(void)
{
	return thp_batch_create_knob(&wp_reuse_attr);
}
late_initcall(wp_reuse_init);
#endif /* CONFIG_SYSFS */

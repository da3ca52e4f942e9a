/* SPDX-License-Identifier: GPL-2.0 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM wp_fault

#if !defined(_TRACE_WP_FAULT_H) || defined(TRACE_HEADER_MULTI_READ)
#define _TRACE_WP_FAULT_H

#include <linux/tracepoint.h>

/*
 * A write fault on a large anonymous folio: @nr PTEs from @start on were made
 * writable, over the folio itself or over a copy of @nr of its pages.
 */
TRACE_EVENT(mm_wp_fault,

	TP_PROTO(unsigned long address, unsigned int order,
		 unsigned long start, unsigned int nr, bool copied),

	TP_ARGS(address, order, start, nr, copied),

	TP_STRUCT__entry(
		__field(unsigned long, address)
		__field(unsigned long, start)
		__field(unsigned int, order)
		__field(unsigned int, nr)
		__field(bool, copied)
	),

	TP_fast_assign(
		__entry->address = address;
		__entry->start = start;
		__entry->order = order;
		__entry->nr = nr;
		__entry->copied = copied;
	),

	TP_printk("address=0x%lx order=%u start=0x%lx nr=%u %s",
		  __entry->address, __entry->order, __entry->start,
		  __entry->nr, __entry->copied ? "copied" : "reused")
);

#endif /* _TRACE_WP_FAULT_H */

#include <trace/define_trace.h>

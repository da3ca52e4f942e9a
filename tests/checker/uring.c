// SPDX-License-Identifier: GPL-2.0
/*
 * A pin that lasts: memory registered as an io_uring fixed buffer.  One ring a
 * pin; I/O goes to the scratch file and back, one request at a time.
 */
#include "chk.h"

#include <linux/io_uring.h>
#include <sys/syscall.h>
#include <sys/uio.h>

static struct ring {
	int fd;			/* + 1; 0: unused */
	struct io_uring_params par;
	void *sq, *cq;
	size_t sqlen, cqlen;
	struct io_uring_sqe *sqe;
	unsigned char *addr;
} rings[NPIN];

static int ring_open(struct ring *r)
{
	struct io_uring_params *p = &r->par;
	int fd;

	memset(r, 0, sizeof(*r));
	fd = (int)syscall(SYS_io_uring_setup, 2, p);
	if (fd < 0)
		return -1;
	r->fd = fd + 1;
	r->sqlen = p->sq_off.array + p->sq_entries * sizeof(unsigned int);
	r->cqlen = p->cq_off.cqes + p->cq_entries * sizeof(struct io_uring_cqe);
	r->sq = mmap(NULL, r->sqlen, PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_POPULATE, fd, IORING_OFF_SQ_RING);
	r->cq = mmap(NULL, r->cqlen, PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_POPULATE, fd, IORING_OFF_CQ_RING);
	r->sqe = mmap(NULL, p->sq_entries * sizeof(*r->sqe), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_POPULATE, fd, IORING_OFF_SQES);
	return 0;
}

void ring_drop(int k)
{
	struct ring *r = &rings[k];

	if (!r->fd)
		return;
	munmap(r->sq, r->sqlen);
	munmap(r->cq, r->cqlen);
	munmap(r->sqe, r->par.sq_entries * sizeof(*r->sqe));
	close(r->fd - 1);
	r->fd = 0;
}

int ring_pin(int k, unsigned int a, unsigned int n)
{
	struct ring *r = &rings[k];
	struct iovec iov = { ADDR(a), n * PG };

	if (ring_open(r))
		return -1;
	r->addr = ADDR(a);
	if (syscall(SYS_io_uring_register, r->fd - 1, IORING_REGISTER_BUFFERS,
		    &iov, 1)) {
		int e = errno;

		ring_drop(k);
		errno = e;
		return -1;
	}
	return 0;
}

/* Scratch file to the pinned memory, or back. */
int ring_io(int k, bool to_memory, unsigned int n)
{
	struct ring *r = &rings[k];
	char *sq = r->sq, *cq = r->cq;
	unsigned int *tail, *head, mask, idx;
	struct io_uring_cqe *cqe;
	int res;

	if (!r->fd)
		return -EBADF;
	tail = (unsigned int *)(void *)(sq + r->par.sq_off.tail);
	mask = *(unsigned int *)(void *)(sq + r->par.sq_off.ring_mask);
	idx = *tail & mask;
	memset(&r->sqe[idx], 0, sizeof(*r->sqe));
	r->sqe[idx].opcode = to_memory ? IORING_OP_READ_FIXED : IORING_OP_WRITE_FIXED;
	r->sqe[idx].fd = scratch_fd;
	r->sqe[idx].addr = (unsigned long)r->addr;
	r->sqe[idx].len = (unsigned int)(n * PG);
	((unsigned int *)(void *)(sq + r->par.sq_off.array))[idx] = idx;
	__atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
	if (syscall(SYS_io_uring_enter, r->fd - 1, 1, 1, IORING_ENTER_GETEVENTS,
		    NULL, 0) < 0)
		return -errno;
	head = (unsigned int *)(void *)(cq + r->par.cq_off.head);
	mask = *(unsigned int *)(void *)(cq + r->par.cq_off.ring_mask);
	cqe = (struct io_uring_cqe *)(void *)(cq + r->par.cq_off.cqes);
	res = cqe[*head & mask].res;
	__atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
	return res == (int)(n * PG) ? 0 : (res < 0 ? res : -EIO);
}

bool ring_probe(void)
{
	struct ring *r = &rings[0];
	bool ok = ring_open(r) == 0;

	ring_drop(0);
	return ok;
}

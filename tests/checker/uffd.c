// SPDX-License-Identifier: GPL-2.0
/* userfaultfd write protection: open, register, protect, next event. */
#include "chk.h"

#include <tools/include/uapi/linux/userfaultfd.h>
#include <sys/syscall.h>

int uffd_open_fd(bool async)
{
	struct uffdio_api api = { .api = UFFD_API };
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);

	if (fd < 0)
		return -1;
	api.features = UFFD_FEATURE_PAGEFAULT_FLAG_WP;
	if (async)
		api.features |= UFFD_FEATURE_WP_UNPOPULATED | UFFD_FEATURE_WP_ASYNC;
	if (ioctl(fd, UFFDIO_API, &api)) {
		close(fd);
		return -1;
	}
	return fd;
}

int uffd_reg(int fd, unsigned int a, unsigned int n, bool on)
{
	struct uffdio_register reg = {
		.range = { (unsigned long)ADDR(a), n * PG },
		.mode = UFFDIO_REGISTER_MODE_WP,
	};

	if (on)
		return ioctl(fd, UFFDIO_REGISTER, &reg);
	return ioctl(fd, UFFDIO_UNREGISTER, &reg.range);
}

int uffd_wp(int fd, unsigned int a, unsigned int n, bool on)
{
	struct uffdio_writeprotect wp = {
		.range = { (unsigned long)ADDR(a), n * PG },
		.mode = on ? UFFDIO_WRITEPROTECT_MODE_WP : 0,
	};
	int r, tries = 100;

	do {
		r = ioctl(fd, UFFDIO_WRITEPROTECT, &wp);
	} while (r && errno == EAGAIN && tries--);
	return r;
}

bool uffd_next(int fd, unsigned int *page)
{
	struct uffd_msg msg;

	if (read(fd, &msg, sizeof(msg)) != (ssize_t)sizeof(msg) ||
	    msg.event != UFFD_EVENT_PAGEFAULT)
		return false;
	*page = (unsigned int)((msg.arg.pagefault.address - ARENA) / PG);
	return true;
}

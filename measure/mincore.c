// SPDX-License-Identifier: GPL-2.0
#include "measure.h"
void run_mincore(void)
{
}

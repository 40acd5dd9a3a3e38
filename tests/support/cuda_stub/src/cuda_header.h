// cuda.h, such that what this library defines of it can be found by those who load the library.
#pragma once

#pragma GCC visibility push(default)
#include <cuda.h>
#pragma GCC visibility pop

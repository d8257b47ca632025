// GCC before 12.4 and 13.3 declares that loading an AMX tile configuration reads 8 bytes of it. It reads 64, so the
// compiler drops the stores that fill the rest, and the first use of a tile ends in an illegal instruction
// (GCC bug 114098). build.py includes this file ahead of llama.cpp's sources, which gives the load its true operand.

#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ < 14 && defined(__AMX_TILE__)
#include <immintrin.h>
#undef _tile_loadconfig
#define _tile_loadconfig(config) __asm__ volatile("ldtilecfg\t%X0" ::"m"(*(const char(*)[64])(config)))
#endif

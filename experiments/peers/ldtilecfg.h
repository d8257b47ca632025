// GCC 12's header declares that loading an AMX tile configuration reads 8 bytes of it. It reads 64, so the compiler may
// drop the stores that fill the rest: with GCC 12.2 it does, and ggml's first use of a tile ends in an illegal
// instruction. build.py includes this file ahead of llama.cpp's sources, which gives the load its true operand.
// A GCC whose header is right is not harmed.

#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ < 14 && defined(__AMX_TILE__)
#include <immintrin.h>
#undef _tile_loadconfig
#define _tile_loadconfig(config) __asm__ volatile("ldtilecfg\t%X0" ::"m"(*(const char(*)[64])(config)))
#endif

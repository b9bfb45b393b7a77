// Permutations of which both sides are long, for entries of 4 bytes or more.

#include "tiles.cuh"

KERNEL tile_16(PARAMS(Tiles)) { tile<16>(p); }
KERNEL tile_8(PARAMS(Tiles)) { tile<8>(p); }
KERNEL tile_4(PARAMS(Tiles)) { tile<4>(p); }
KERNEL wide_4(PARAMS(Tiles)) { words<4, 64, 64, 2>(p); }

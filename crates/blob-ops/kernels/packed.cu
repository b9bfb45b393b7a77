// Permutations of which both sides are long, for entries of 1 or 2 bytes: by words of four bytes where these lie at such places.

#include "tiles.cuh"

KERNEL tile_2(PARAMS(Tiles)) { tile<2>(p); }
KERNEL tile_1(PARAMS(Tiles)) { tile<1>(p); }
KERNEL packed_2(PARAMS(Tiles)) { words<2, 32, 32, 1>(p); }
KERNEL packed_1(PARAMS(Tiles)) { words<1, 32, 32, 1>(p); }
KERNEL wide_2(PARAMS(Tiles)) { words<2, 64, 64, 2>(p); }
KERNEL wide_1(PARAMS(Tiles)) { words<1, 32, 64, 1>(p); }

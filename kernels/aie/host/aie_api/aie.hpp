// The part of aie_api that our kernels use, for a host compiler: names and signatures are
// aie_api's, the arithmetic is a model of the cores'. What is not here does not compile.
//
// Modelled bit for bit, as far as the cores' behaviour is published:
//   bfloat16 * bfloat16 exact in float32; float32 sums rounded to nearest;
//   float32 -> bfloat16 by the rounding mode, which is floor until a kernel sets another;
//   float32 * float32 as nine products of bfloat16 limbs (the cores have no float32 multiplier);
//   subnormal operands and results are zero;
//   a vector load or store at an address that is not aligned for its width is an error, as is one
//   outside the buffers that a call was given (memory.hpp).
//
// Only a contract, marked CONTRACT where it stands: the accuracy of inv and invsqrt, the order of
// the sums in reduce_add and mmul, and how comparisons, max and min treat NaN. aie_api's tanh and
// exp2 are left out: they are too coarse for what we promise, and aie2 has neither.
#pragma once

#ifndef __AIE_ARCH__
#error "__AIE_ARCH__ must be 20 (aie2) or 21 (aie2p)"
#endif

#include "host/arithmetic.hpp"
#include "host/compare.hpp"
#include "host/elementary.hpp"
#include "host/memory.hpp"
#include "host/mmul.hpp"
#include "host/reduce.hpp"
#include "host/scalar.hpp"
#include "host/shuffle.hpp"
#include "host/vector.hpp"

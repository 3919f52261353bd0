// The part of aie_api that our kernels use, for a host compiler: names and signatures are
// aie_api's, the arithmetic is a model of the cores'. What is not here does not compile.
//
// Where each part of the model is from. aie_api is Xilinx/aie_api (detail/aie2, detail/aie2p),
// Peano the intrinsics' headers of Xilinx/llvm-aie (clang/lib/Headers), "fitted" a model that
// others published, fitted to runs on an npu2; aie2 is taken to be the same there.
//
//   bfloat16 * bfloat16          exact in float32                                      fitted
//   accfloat + accfloat          aligned to the larger exponent, 24 bits each          fitted
//   mac, msc                     one rounding, 3 bits more for the sum                 fitted
//   float * float                9 products of limbs, the smallest first; NaN for      Peano
//                                infinity; limbs rounded by the mode
//   float -> bfloat16            by the rounding mode, floor until a kernel sets       published
//                                another; NaN's payload UNKNOWN
//   subnormal numbers            zero as operand and as result                         published
//   lt, ge of float              bfloat16(a - b) against 0                             Peano
//   max, min of float            select by these; the first where one is NaN           Peano
//   lt, ge, max of bfloat16      an instruction; UNKNOWN with NaN, here false          Peano
//   lt, ge, min of int16, int32  native                                                Peano
//   abs of float                 aie2: of the bits as a whole number; aie2p: sign's    Peano
//                                bit cleared
//   abs of bfloat16, neg         the sign's bit cleared, turned                        Peano,
//   aie_api reduce_add, reduce_max       halves meet until one lane is left aie_api inv, invsqrt on
//   aie2         a guess by the bits and Newton's steps                aie_api inv, invsqrt on
//   aie2p        a scalar instruction of UNKNOWN accuracy, a vector    Peano, aie_api
//                                lane by lane
//   mmul                         UNKNOWN: the order in which a sum's eight products    -
//                                are added
//   bit_and, bit_or, add, sub and upshift of whole numbers; cast_to, select, filter_even,
//   filter_odd, interleave_zip, transpose, broadcast, zeros: bits are moved, nothing is rounded.
//
// Scalar float32 arithmetic is the compiler's own in software, IEEE 754's. A vector load or store
// at an address that is not aligned for its width is an error, as is one outside the buffers that a
// call was given (memory.hpp). aie_api's tanh and exp2 are left out: an npu2's tanh is off by up to
// 0.038, its exp2 is linear between powers of two, and aie2 has neither.
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

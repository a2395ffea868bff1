// The vector operations that all kernels are written in, for the instruction set that this file is compiled for.
//
// Kernels use nothing of the C++ library: a function template that two instruction sets instantiate would be linked
// once, perhaps as the one that this CPU can't run.
#pragma once

#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

struct bf16 {
    uint16_t bits;
};

#if defined(__AVX512BF16__)
#define ISA avx512_bf16
#else
#define ISA avx2
#endif

#if defined(__AVX512BF16__)
#include "vector_avx512.h"
#else
#include "vector_avx2.h"
#endif

namespace ISA {

constexpr int PANEL_COLUMNS = 2 * LANES;
constexpr int DEPTH_UNIT = 8;  // depths are padded to a multiple of it, with zeros on both sides

static inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static inline int64_t round_up(int64_t a, int64_t unit) { return ceil_div(a, unit) * unit; }

static inline float to_float(float value) { return value; }
static inline float to_float(bf16 value) {
    const uint32_t bits = (uint32_t)value.bits << 16;
    float result;
    memcpy(&result, &bits, 4);
    return result;
}

// Rounds to nearest, ties to even; NaN stays NaN.
static inline void put(float *target, float value) { *target = value; }
static inline void put(bf16 *target, float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    if ((bits & 0x7fffffff) > 0x7f800000) target->bits = (uint16_t)((bits >> 16) | 0x40);
    else target->bits = (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// Natural exponential; Cody and Waite's reduction and the minimax polynomial of Cephes' expf, two units in the last
// place. Everything below -87 gives a number that is 0 beside 1. NaN stays NaN: the second operand wins then.
static inline Vec exp(Vec x) {
    x = max(splat(-87.0f), min(splat(88.0f), x));
    const Vec n = round(mul(x, splat(1.44269504088896341f)));
    Vec r = fma(n, splat(-0.693359375f), x);
    r = fma(n, splat(2.12194440e-4f), r);
    Vec p = splat(1.9875691500e-4f);
    p = fma(p, r, splat(1.3981999507e-3f));
    p = fma(p, r, splat(8.3334519073e-3f));
    p = fma(p, r, splat(4.1665795894e-2f));
    p = fma(p, r, splat(1.6666665459e-1f));
    p = fma(p, r, splat(5.0000001201e-1f));
    return scale_by_power(fma(p, mul(r, r), add(r, splat(1.0f))), n);
}

// Copies `count` numbers and fills up to `padded` with zeros.
template <typename From, typename To>
static inline void convert_row(const From *from, int64_t count, int64_t padded, To *to) {
    int64_t column = 0;
    for (; column + LANES <= count; column += LANES) store(to + column, load(from + column));
    const int left = (int)(count - column);
    if (left) store_first(to + column, load_first(from + column, left), left);
    for (column = count; column < padded; column++) put(to + column, 0.0f);
}

}  // namespace ISA

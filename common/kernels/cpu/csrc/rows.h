// What a decoder does row by row: root-mean-square norms, and rotary positions.
#pragma once

#include "isa.h"

namespace ISA {

// 1 / root of the mean square
static inline float inverse_root(const float *row, int64_t size, float epsilon) {
    Vec squares = splat(0.0f);
    int64_t i = 0;
    for (; i + LANES <= size; i += LANES) squares = fma(load(row + i), load(row + i), squares);
    if (i < size) {
        const Vec last = load_first(row + i, (int)(size - i));
        squares = fma(last, last, squares);
    }
    return 1.0f / sqrtf(sum(squares) / (float)size + epsilon);
}

// to = row / root mean square * weight; zeros from `size` to `padded`
template <typename To>
static inline void rms_norm(
    const float *row, const float *weight, int64_t size, int64_t padded, float epsilon, To *to
) {
    const Vec scale = splat(inverse_root(row, size, epsilon));
    int64_t i = 0;
    for (; i + LANES <= size; i += LANES) store(to + i, mul(mul(load(row + i), scale), load(weight + i)));
    if (i < size) {
        const int count = (int)(size - i);
        store_first(to + i, mul(mul(load_first(row + i, count), scale), load_first(weight + i, count)), count);
    }
    for (i = size; i < padded; i++) put(to + i, 0.0f);
}

// Rotates a head in place. angles: [2, head_dim], cosine and sine with its first half negated.
template <typename T> static inline void rotate(float *head, const T *angles, int64_t head_dim) {
    const int64_t half = head_dim / 2;
    const T *cosine = angles, *sine = angles + head_dim;
    for (int64_t i = 0; i < half; i++) {
        const float first = head[i], second = head[half + i];
        head[i] = first * to_float(cosine[i]) + second * to_float(sine[i]);
        head[half + i] = second * to_float(cosine[half + i]) + first * to_float(sine[half + i]);
    }
}

}  // namespace ISA

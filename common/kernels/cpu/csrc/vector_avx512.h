// AVX-512 with its bfloat16 products: 16 lanes, and two products per lane and instruction.
#pragma once

namespace avx512_bf16 {

using Vec = __m512;
constexpr int LANES = 16;
constexpr int MAX_TILE_ROWS = 12;  // 24 accumulators of the 32 registers

template <typename T> struct OperandOf { using Type = T; };  // what a weight of type T is multiplied with
template <typename T> using Operand = typename OperandOf<T>::Type;

static inline __mmask16 first_lanes(int count) { return (__mmask16)(count >= 16 ? 0xffff : (1u << count) - 1); }
static inline __m512 widen(__m256i halves) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

static inline Vec splat(float value) { return _mm512_set1_ps(value); }
static inline Vec load(const float *from) { return _mm512_loadu_ps(from); }
static inline Vec load(const bf16 *from) { return widen(_mm256_loadu_si256((const __m256i *)from)); }
static inline Vec load_first(const float *from, int count) { return _mm512_maskz_loadu_ps(first_lanes(count), from); }
static inline Vec load_first(const bf16 *from, int count) {
    return widen(_mm256_maskz_loadu_epi16(first_lanes(count), from));
}
static inline void store(float *to, Vec v) { _mm512_storeu_ps(to, v); }
static inline void store(bf16 *to, Vec v) { _mm256_storeu_si256((__m256i *)to, (__m256i)_mm512_cvtneps_pbh(v)); }
static inline void store_first(float *to, Vec v, int count) { _mm512_mask_storeu_ps(to, first_lanes(count), v); }
static inline void store_first(bf16 *to, Vec v, int count) {
    _mm256_mask_storeu_epi16(to, first_lanes(count), (__m256i)_mm512_cvtneps_pbh(v));
}

static inline Vec add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
static inline Vec sub(Vec a, Vec b) { return _mm512_sub_ps(a, b); }
static inline Vec mul(Vec a, Vec b) { return _mm512_mul_ps(a, b); }
static inline Vec div(Vec a, Vec b) { return _mm512_div_ps(a, b); }
static inline Vec fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
static inline Vec max(Vec a, Vec b) { return _mm512_max_ps(a, b); }
static inline Vec min(Vec a, Vec b) { return _mm512_min_ps(a, b); }
static inline Vec round(Vec a) { return _mm512_roundscale_ps(a, 0); }
static inline Vec scale_by_power(Vec a, Vec power) { return _mm512_scalef_ps(a, power); }
static inline float sum(Vec a) { return _mm512_reduce_add_ps(a); }
static inline bool any_greater(Vec a, Vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ) != 0; }
static inline float largest(Vec a) { return _mm512_reduce_max_ps(a); }

// `a` in lanes begin to end - 1, `other` in the rest. begin and end may lie outside the lanes.
static inline Vec select_range(Vec a, int64_t begin, int64_t end, Vec other) {
    const int low = begin <= 0 ? 0 : begin >= 16 ? 16 : (int)begin, high = end <= 0 ? 0 : end >= 16 ? 16 : (int)end;
    return _mm512_mask_blend_ps((__mmask16)(first_lanes(high) & ~first_lanes(low)), other, a);
}

// Lane i: the sum over the lanes of rows[i].
static inline Vec sum_rows(const Vec *rows) {
    Vec pairs[8], quads[4];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        const Vec low = _mm512_unpacklo_ps(rows[2 * i], rows[2 * i + 1]);
        pairs[i] = add(low, _mm512_unpackhi_ps(rows[2 * i], rows[2 * i + 1]));
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        const __m512d a = _mm512_castps_pd(pairs[2 * i]), b = _mm512_castps_pd(pairs[2 * i + 1]);
        quads[i] = add(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)), _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
    }
    const Vec low =
        add(_mm512_shuffle_f32x4(quads[0], quads[1], 0x88), _mm512_shuffle_f32x4(quads[0], quads[1], 0xdd));
    const Vec high =
        add(_mm512_shuffle_f32x4(quads[2], quads[3], 0x88), _mm512_shuffle_f32x4(quads[2], quads[3], 0xdd));
    return add(_mm512_shuffle_f32x4(low, high, 0x88), _mm512_shuffle_f32x4(low, high, 0xdd));
}

static inline __m512bh pairs_of(const bf16 *from) { return (__m512bh)_mm512_loadu_si512(from); }
static inline __m512bh splat_pair(const bf16 *from) {
    int pair;
    memcpy(&pair, from, 4);
    return (__m512bh)_mm512_set1_epi32(pair);
}

// One step along the depth of a panel: as many numbers of each row as DEPTH says, times all columns.
template <typename T> struct PanelStep;

template <> struct PanelStep<bf16> {
    static constexpr int DEPTH = 2;
    template <int ROWS>
    static inline void run(const bf16 *input, int64_t stride, const bf16 *panel, Vec (*sums)[2]) {
        const __m512bh left = pairs_of(panel), right = pairs_of(panel + 32);
#pragma GCC unroll 12
        for (int row = 0; row < ROWS; row++) {
            const __m512bh factor = splat_pair(input + row * stride);
            sums[row][0] = _mm512_dpbf16_ps(sums[row][0], factor, left);
            sums[row][1] = _mm512_dpbf16_ps(sums[row][1], factor, right);
        }
    }
};

template <> struct PanelStep<float> {
    static constexpr int DEPTH = 1;
    template <int ROWS>
    static inline void run(const float *input, int64_t stride, const float *panel, Vec (*sums)[2]) {
        const Vec left = load(panel), right = load(panel + 16);
#pragma GCC unroll 12
        for (int row = 0; row < ROWS; row++) {
            const Vec factor = splat(input[row * stride]);
            sums[row][0] = fma(factor, left, sums[row][0]);
            sums[row][1] = fma(factor, right, sums[row][1]);
        }
    }
};

// How attention reads a key's or value's row: SIZE dimensions at a time, VECTORS accumulators for them.
template <typename T> struct RowChunk;

template <> struct RowChunk<bf16> {
    static constexpr int SIZE = 32, VECTORS = 2, TOKENS = 2;

    static inline __m512i read(const bf16 *from, int count) {
        if (count >= SIZE) return _mm512_loadu_si512(from);
        return _mm512_maskz_loadu_epi16((__mmask32)((1u << count) - 1), from);
    }
    static inline Vec dot(Vec total, const bf16 *query, const bf16 *key, int count) {
        return _mm512_dpbf16_ps(total, pairs_of(query), (__m512bh)read(key, count));
    }
    // Two tokens' values with their dimensions interleaved, so that one instruction takes both.
    template <int GROUP>
    static inline void accumulate(
        const bf16 *const *values, int64_t offset, int count, const bf16 *weights, Vec (*sums)[VECTORS]
    ) {
        const __m512i first = read(values[0] + offset, count), second = read(values[1] + offset, count);
        const __m512bh low = (__m512bh)_mm512_unpacklo_epi16(first, second);
        const __m512bh high = (__m512bh)_mm512_unpackhi_epi16(first, second);
#pragma GCC unroll 8
        for (int head = 0; head < GROUP; head++) {
            const __m512bh pair = splat_pair(weights + head * LANES);
            sums[head][0] = _mm512_dpbf16_ps(sums[head][0], low, pair);
            sums[head][1] = _mm512_dpbf16_ps(sums[head][1], high, pair);
        }
    }
    // From the order that interleaving made back to that of the dimensions; to may be sums.
    static inline void restore_order(const float *sums, float *to) {
        const __m512i left = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
        const __m512i right = _mm512_setr_epi32(8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
        const Vec low = load(sums), high = load(sums + 16);
        store(to, _mm512_permutex2var_ps(low, left, high));
        store(to + 16, _mm512_permutex2var_ps(low, right, high));
    }
};

template <> struct RowChunk<float> {
    static constexpr int SIZE = 16, VECTORS = 1, TOKENS = 1;

    static inline Vec dot(Vec total, const float *query, const float *key, int count) {
        return fma(load(query), count >= SIZE ? load(key) : load_first(key, count), total);
    }
    template <int GROUP>
    static inline void accumulate(
        const float *const *values, int64_t offset, int count, const float *weights, Vec (*sums)[VECTORS]
    ) {
        const Vec value = count >= SIZE ? load(values[0] + offset) : load_first(values[0] + offset, count);
#pragma GCC unroll 8
        for (int head = 0; head < GROUP; head++)
            sums[head][0] = fma(splat(weights[head * LANES]), value, sums[head][0]);
    }
    static inline void restore_order(const float *, float *) {}
};

}  // namespace avx512_bf16

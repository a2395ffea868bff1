// AVX2 with fused multiply-add: 8 lanes. bfloat16 weights are widened as they are read, activations stay float32.
#pragma once

namespace avx2 {

using Vec = __m256;
constexpr int LANES = 8;
constexpr int MAX_TILE_ROWS = 6;  // 12 accumulators of the 16 registers

template <typename T> struct OperandOf { using Type = float; };  // what a weight of type T is multiplied with
template <typename T> using Operand = typename OperandOf<T>::Type;

static inline Vec widen(__m128i halves) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}
static inline __m128i narrow(Vec v) {  // to nearest, ties to even; NaN stays NaN
    const __m256i bits = _mm256_castps_si256(v);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    const __m256i halves = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, is_nan), 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(halves), _mm256_extracti128_si256(halves, 1));
}
static inline __m256i lane_numbers() { return _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7); }
static inline __m256i first_lanes(int count) { return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), lane_numbers()); }

static inline Vec splat(float value) { return _mm256_set1_ps(value); }
static inline Vec load(const float *from) { return _mm256_loadu_ps(from); }
static inline Vec load(const bf16 *from) { return widen(_mm_loadu_si128((const __m128i *)from)); }
static inline Vec load_first(const float *from, int count) { return _mm256_maskload_ps(from, first_lanes(count)); }
static inline Vec load_first(const bf16 *from, int count) {
    alignas(16) bf16 room[8] = {};
    memcpy(room, from, (size_t)(count > 8 ? 8 : count) * sizeof(bf16));
    return load(room);
}
static inline void store(float *to, Vec v) { _mm256_storeu_ps(to, v); }
static inline void store(bf16 *to, Vec v) { _mm_storeu_si128((__m128i *)to, narrow(v)); }
static inline void store_first(float *to, Vec v, int count) { _mm256_maskstore_ps(to, first_lanes(count), v); }
static inline void store_first(bf16 *to, Vec v, int count) {
    alignas(16) bf16 room[8];
    store(room, v);
    memcpy(to, room, (size_t)(count > 8 ? 8 : count) * sizeof(bf16));
}

static inline Vec add(Vec a, Vec b) { return _mm256_add_ps(a, b); }
static inline Vec sub(Vec a, Vec b) { return _mm256_sub_ps(a, b); }
static inline Vec mul(Vec a, Vec b) { return _mm256_mul_ps(a, b); }
static inline Vec div(Vec a, Vec b) { return _mm256_div_ps(a, b); }
static inline Vec fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
static inline Vec max(Vec a, Vec b) { return _mm256_max_ps(a, b); }
static inline Vec min(Vec a, Vec b) { return _mm256_min_ps(a, b); }
static inline Vec round(Vec a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
static inline Vec scale_by_power(Vec a, Vec power) {
    const __m256i exponent = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(power), _mm256_set1_epi32(127)), 23);
    return mul(a, _mm256_castsi256_ps(exponent));
}
static inline float sum(Vec a) {
    __m128 half = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(half, _mm_shuffle_ps(half, half, 1)));
}
static inline bool any_greater(Vec a, Vec b) { return _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_GT_OQ)) != 0; }
static inline float largest(Vec a) {
    __m128 half = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    half = _mm_max_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_max_ss(half, _mm_shuffle_ps(half, half, 1)));
}

// `a` in lanes begin to end - 1, `other` in the rest. begin and end may lie outside the lanes.
static inline Vec select_range(Vec a, int64_t begin, int64_t end, Vec other) {
    const int low = begin <= 0 ? 0 : begin >= 8 ? 8 : (int)begin, high = end <= 0 ? 0 : end >= 8 ? 8 : (int)end;
    const __m256i chosen = _mm256_andnot_si256(first_lanes(low), first_lanes(high));
    return _mm256_blendv_ps(other, a, _mm256_castsi256_ps(chosen));
}

// Lane i: the sum over the lanes of rows[i].
static inline Vec sum_rows(const Vec *rows) {
    const Vec a = _mm256_hadd_ps(_mm256_hadd_ps(rows[0], rows[1]), _mm256_hadd_ps(rows[2], rows[3]));
    const Vec b = _mm256_hadd_ps(_mm256_hadd_ps(rows[4], rows[5]), _mm256_hadd_ps(rows[6], rows[7]));
    return add(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
}

// One step along the depth of a panel: as many numbers of each row as DEPTH says, times all columns.
template <typename T> struct PanelStep;

template <> struct PanelStep<bf16> {
    static constexpr int DEPTH = 2;
    template <int ROWS>
    static inline void run(const float *input, int64_t stride, const bf16 *panel, Vec (*sums)[2]) {
        const __m256i high_halves = _mm256_set1_epi32((int)0xffff0000);
#pragma GCC unroll 2
        for (int side = 0; side < 2; side++) {
            const __m256i pairs = _mm256_loadu_si256((const __m256i *)(panel + 16 * side));
            const Vec even = _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
            const Vec odd = _mm256_castsi256_ps(_mm256_and_si256(pairs, high_halves));
#pragma GCC unroll 6
            for (int row = 0; row < ROWS; row++) {
                sums[row][side] = fma(splat(input[row * stride]), even, sums[row][side]);
                sums[row][side] = fma(splat(input[row * stride + 1]), odd, sums[row][side]);
            }
        }
    }
};

template <> struct PanelStep<float> {
    static constexpr int DEPTH = 1;
    template <int ROWS>
    static inline void run(const float *input, int64_t stride, const float *panel, Vec (*sums)[2]) {
        const Vec left = load(panel), right = load(panel + 8);
#pragma GCC unroll 6
        for (int row = 0; row < ROWS; row++) {
            const Vec factor = splat(input[row * stride]);
            sums[row][0] = fma(factor, left, sums[row][0]);
            sums[row][1] = fma(factor, right, sums[row][1]);
        }
    }
};

// How attention reads a key's or value's row: SIZE dimensions at a time. Head sizes are multiples of 8.
template <typename T> struct RowChunk {
    static constexpr int SIZE = 8, VECTORS = 1, TOKENS = 1;

    static inline Vec dot(Vec total, const float *query, const T *key, int) {
        return fma(load(query), load(key), total);
    }
    template <int GROUP>
    static inline void accumulate(
        const T *const *values, int64_t offset, int, const float *weights, Vec (*sums)[VECTORS]
    ) {
        const Vec value = load(values[0] + offset);
#pragma GCC unroll 8
        for (int head = 0; head < GROUP; head++)
            sums[head][0] = fma(splat(weights[head * LANES]), value, sums[head][0]);
    }
    static inline void restore_order(const float *, float *) {}
};

}  // namespace avx2

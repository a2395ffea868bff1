// What the machine can do at best, for benchmarks: reading memory, and multiplying registers.
#include "entry_points.h"

namespace ISA {

double read_memory(const Team &team, const char *from, int64_t num_bytes) {
    constexpr int VECTORS = 4;
    const int64_t stride = VECTORS * LANES * (int64_t)sizeof(float);
    const int64_t first = team.first_of(num_bytes / stride), end = team.end_of(num_bytes / stride);
    Vec sums[VECTORS] = {splat(0.0f), splat(0.0f), splat(0.0f), splat(0.0f)};
    for (int64_t at = first * stride; at < end * stride; at += stride) {
        for (int64_t line = 0; line < stride; line += 64) _mm_prefetch(from + at + 4096 + line, _MM_HINT_T0);
        for (int i = 0; i < VECTORS; i++)
            sums[i] = add(sums[i], load((const float *)(from + at + i * LANES * (int64_t)sizeof(float))));
    }
    return sum(add(add(sums[0], sums[1]), add(sums[2], sums[3])));
}

template <typename T> static double multiply(int64_t count) {
    constexpr int ROWS = MAX_TILE_ROWS;
    alignas(64) static const T panel[64 * PANEL_COLUMNS] = {};
    alignas(64) static const Operand<T> input[64 * ROWS] = {};
    Vec sums[ROWS][2];
    for (int row = 0; row < ROWS; row++) sums[row][0] = sums[row][1] = splat(0.0f);
    for (int64_t i = 0; i < count; i++)
        PanelStep<T>::template run<ROWS>(input + i % 32 * 2, 64, panel + i % 16 * PANEL_COLUMNS * 2, sums);
    Vec total = splat(0.0f);
    for (int row = 0; row < ROWS; row++) total = add(total, add(sums[row][0], sums[row][1]));
    return sum(total);
}

// Runs `count` panel steps of MAX_TILE_ROWS rows out of the first-level cache; returns a number that depends on all.
double multiply_registers(DType dtype, int64_t count) {
    return dtype == DTYPE_BFLOAT16 ? multiply<bf16>(count) : multiply<float>(count);
}

}  // namespace ISA

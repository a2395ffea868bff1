// The functions that exist once per instruction set. Each is run by every thread of a team.
#pragma once

#include "abi.h"
#include "team.h"

struct Kernels {
    int panel_columns;
    void (*linear)(const Team &team, DType dtype, const LinearCall &call);
    void (*attention)(const Team &team, DType dtype, const AttentionCall &call);
    void (*step)(const Team &team, DType dtype, const StepCall &call);
    int64_t (*linear_scratch_bytes)(DType dtype, int64_t num_rows, int64_t depth);
    int64_t (*attention_scratch_bytes)(DType dtype, const AttentionCall &call, int num_threads);
    int64_t (*step_scratch_bytes)(DType dtype, const StepCall &call, int num_threads);
    void (*draw)(const Team &team, const DrawCall &call);
    int64_t (*draw_scratch_bytes)(const DrawCall &call, int num_threads);
    double (*read_memory)(const Team &team, const char *from, int64_t num_bytes);
    double (*multiply_registers)(DType dtype, int64_t count);
    int64_t operations_per_step[2];  // of multiply_registers, by DType
};

namespace avx2 {
extern const Kernels KERNELS;
}
namespace avx512_bf16 {
extern const Kernels KERNELS;
}

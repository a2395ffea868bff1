// What the files of one instruction set offer to its table in table.cpp.
#pragma once

#include "isa.h"
#include "kernels.h"

namespace ISA {

void linear_entry(const Team &team, DType dtype, const LinearCall &call);
void attention_entry(const Team &team, DType dtype, const AttentionCall &call);
void step_entry(const Team &team, DType dtype, const StepCall &call);
int64_t linear_scratch_bytes(DType dtype, int64_t num_rows, int64_t depth);
int64_t attention_scratch_bytes(DType dtype, const AttentionCall &call, int num_threads);
int64_t step_scratch_bytes(DType dtype, const StepCall &call, int num_threads);
void draw_entry(const Team &team, const DrawCall &call);
int64_t draw_scratch_bytes(const DrawCall &call, int num_threads);
double read_memory(const Team &team, const char *from, int64_t num_bytes);
double multiply_registers(DType dtype, int64_t count);

}  // namespace ISA

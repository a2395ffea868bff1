// The library's C interface: chooses the instruction set, and puts a team of threads to work.
//
// It links no OpenMP library. Python hands over three functions of the one that torch has loaded, so that both share
// one pool of threads: two pools would fight for the cores.
#include "kernels.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

// GCC's interface, which LLVM's and Intel's libraries offer too.
struct OpenMp {
    void (*parallel)(void (*body)(void *), void *argument, unsigned num_threads, unsigned flags);
    int (*thread_num)();
    int (*num_threads)();
};

static OpenMp openmp = {};  // written once, while the library is loaded

static const Kernels &kernels_of(int isa) { return isa == ISA_AVX512_BF16 ? avx512_bf16::KERNELS : avx2::KERNELS; }

template <typename Body> struct TeamWork {
    Barrier barrier;
    Body body;

    static void start(void *work) {
        TeamWork &self = *(TeamWork *)work;
        self.body(Team{openmp.thread_num(), openmp.num_threads(), &self.barrier});
    }
};

template <typename Body> static void run_team(int num_threads, Body body) {
    TeamWork<Body> work = {{}, body};
    if (num_threads <= 1 || !openmp.parallel) return body(Team{0, 1, &work.barrier});
    openmp.parallel(TeamWork<Body>::start, &work, (unsigned)num_threads, 0);
}

EXPORT int slipstream_abi_version() { return SLIPSTREAM_ABI_VERSION; }

// Of the sources that this was built from: ../build.py looks for it in the file.
EXPORT const char *slipstream_source_digest() { return "source-digest:" SLIPSTREAM_SOURCE_DIGEST; }

EXPORT void slipstream_use_openmp(void *parallel, void *thread_num, void *num_threads) {
    openmp = {(decltype(OpenMp::parallel))parallel, (decltype(OpenMp::thread_num))thread_num,
              (decltype(OpenMp::num_threads))num_threads};
}

EXPORT int slipstream_best_isa() {
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
        return ISA_AVX512_BF16;
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? ISA_AVX2 : ISA_NONE;
}

EXPORT int slipstream_panel_columns(int isa) { return kernels_of(isa).panel_columns; }

EXPORT void slipstream_linear(int isa, int dtype, int num_threads, const LinearCall *call) {
    run_team(num_threads, [&](const Team &team) { kernels_of(isa).linear(team, (DType)dtype, *call); });
}

EXPORT int64_t slipstream_linear_scratch_bytes(int isa, int dtype, int64_t num_rows, int64_t depth) {
    return kernels_of(isa).linear_scratch_bytes((DType)dtype, num_rows, depth);
}

EXPORT void slipstream_attention(int isa, int dtype, int num_threads, const AttentionCall *call) {
    run_team(num_threads, [&](const Team &team) { kernels_of(isa).attention(team, (DType)dtype, *call); });
}

EXPORT int64_t slipstream_attention_scratch_bytes(int isa, int dtype, int num_threads, const AttentionCall *call) {
    return kernels_of(isa).attention_scratch_bytes((DType)dtype, *call, num_threads);
}

EXPORT void slipstream_step(int isa, int dtype, int num_threads, const StepCall *call) {
    run_team(num_threads, [&](const Team &team) { kernels_of(isa).step(team, (DType)dtype, *call); });
}

EXPORT int64_t slipstream_step_scratch_bytes(int isa, int dtype, int num_threads, const StepCall *call) {
    return kernels_of(isa).step_scratch_bytes((DType)dtype, *call, num_threads);
}

EXPORT void slipstream_draw(int isa, int num_threads, const DrawCall *call) {
    run_team(num_threads, [&](const Team &team) { kernels_of(isa).draw(team, *call); });
}

EXPORT int64_t slipstream_draw_scratch_bytes(int isa, int num_threads, const DrawCall *call) {
    return kernels_of(isa).draw_scratch_bytes(*call, num_threads);
}

EXPORT int64_t slipstream_read_memory(int isa, int num_threads, const void *from, int64_t num_bytes) {
    int64_t total = 0;
    run_team(num_threads, [&](const Team &team) {
        const double part = kernels_of(isa).read_memory(team, (const char *)from, num_bytes);
        __atomic_fetch_add(&total, (int64_t)part, __ATOMIC_RELAXED);
    });
    return total;
}

// Every thread takes `count` steps; returns how many multiplications and additions one step is.
EXPORT int64_t slipstream_multiply_registers(int isa, int dtype, int num_threads, int64_t count) {
    int64_t total = 0;
    run_team(num_threads, [&](const Team &) {
        const double part = kernels_of(isa).multiply_registers((DType)dtype, count);
        __atomic_fetch_add(&total, (int64_t)part, __ATOMIC_RELAXED);
    });
    return kernels_of(isa).operations_per_step[dtype] + total;  // total is 0, and must be computed
}

"""CUDA kernels that keep parameters and then count what differs, of many tensors in a launch.

A tile is up to `TILE` elements of one parameter and is the work of one block. Sums are made in
float64 in an order that does not depend on timing, so a run gives the same figures again.

Kinds of numbers: 0 float32, 1 float16, 2 bfloat16, 3 float64. Tables on the device:

* ``about``, 8 per parameter: elements, kind (-1: counted elsewhere), byte in `kept`, first tile,
  end of tiles, first of its row flags (-1: rows are not counted), elements of a row, rows
* ``live``, 3 per parameter: address, address of the gradient, kind of the gradient (-1: there is
  none, and the optimizer leaves the parameter alone; 4: not summed here)
* ``tiles``, 2 per tile: parameter, number of the tile within it
* ``partial``, 4 x tiles: elements that changed, squares of the change, of the gradient, of the
  parameter before
* ``flags``, 2 x rows: the row changed, the row has a gradient
* ``result``, `FIGURES` per parameter: the four sums, rows that changed, rows with a gradient
"""

TILE = 8192
# Of a block; one of `finish` sums all tiles and rows of a parameter.
THREADS = {"keep": 256, "compare": 256, "finish": 1024}
AHEAD = 4
FIGURES = 6
ABOUT = 8
LIVE = 3
NOT_SUMMED = 4

# The first words are looked at: torch puts `extern "C"` before a source that begins otherwise.
SOURCE = (
    r"""extern "C" {
#define TILE """
    + str(TILE)
    + r"""
#define AHEAD """
    + str(AHEAD)
    + r"""
}
typedef long long i64;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
struct alignas(16) Pack { u32 word[4]; };

template <int KIND> struct Number;
template <> struct Number<0> {
    typedef u32 bits;
    static __device__ double value(u32 b) { float f; memcpy(&f, &b, 4); return f; }
};
template <> struct Number<1> {
    typedef u16 bits;
    static __device__ double value(u16 b) {
#ifdef __CUDA_ARCH__
        float f;
        asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(b));
        return f;
#else
        int power = b >> 10 & 31, digits = b & 1023;
        if (power) digits += 1024; else power = 1;
        double size = power < 31 ? __builtin_ldexp(digits, power - 25)
                                 : digits > 1024 ? __builtin_nan("") : __builtin_inf();
        return b >> 15 ? -size : size;
#endif
    }
};
template <> struct Number<2> {
    typedef u16 bits;
    static __device__ double value(u16 b) {
        u32 wide = (u32)b << 16; float f; memcpy(&f, &wide, 4); return f;
    }
};
template <> struct Number<3> {
    typedef u64 bits;
    static __device__ double value(u64 b) { double f; memcpy(&f, &b, 8); return f; }
};

// Marks rows of elements.
struct Rows {
    u8* flags; u32 offset, length, last;
    __device__ Rows(const i64* a, u8* all, i64 start) : flags(0), last(~0u) {
        if (a[5] < 0) return;
        flags = all + a[5] + start / a[6]; offset = start % a[6]; length = a[6];
    }
    // Bit j of `which`: element first + j, of `count`. They mostly lie in one row.
    __device__ void mark(u32 first, u32 which, u32 count) {
        if (!flags || !which) return;
        u32 row = (offset + first) / length, at = (offset + first) % length;
        if (at + count <= length) { if (row != last) flags[row] = 1; last = row; return; }
        for (; which; which >>= 1, at++) if (which & 1) flags[row + at / length] = 1;
    }
};

// The sum of all threads, for the first of them.
__device__ double block_sum(double x) {
    __shared__ double warps[32];
    for (int far = 16; far; far /= 2) x += __shfl_down_sync(~0u, x, far);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = x;
    __syncthreads();
    double sum = 0;
    for (int w = 0; w * 32 < blockDim.x; w++) sum += warps[w];
    __syncthreads();
    return sum;
}

__device__ bool aligned(const void* a, const void* b) { return !(((u64)a | (u64)b) & 15); }

// Calls f(first, x, y, count) for `count` elements of a and, if BOTH, of b. A thread asks for
// `AHEAD` packs before it looks at one: memory is slow to answer.
template <int KIND, bool BOTH, class F>
__device__ void walk(const void* a, const void* b, int n, F f) {
    typedef typename Number<KIND>::bits B;
    const int each = 16 / sizeof(B);
    const int packs = aligned(a, b) ? n / each : 0;
    for (int i = threadIdx.x; i < packs; i += AHEAD * blockDim.x) {
        Pack p[AHEAD], q[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            int at = i + k * blockDim.x;
            if (at < packs) { p[k] = ((const Pack*)a)[at]; if (BOTH) q[k] = ((const Pack*)b)[at]; }
        }
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            int at = i + k * blockDim.x;
            if (at >= packs) break;
            B x[each], y[each]; memcpy(x, &p[k], 16); if (BOTH) memcpy(y, &q[k], 16);
            f(at * each, x, y, each);
        }
    }
    for (int i = packs * each + threadIdx.x; i < n; i += blockDim.x)
        f(i, (const B*)a + i, (const B*)b + i, 1);
}

template <int KIND> __device__ double copy(const void* from, void* to, int n) {
    typedef typename Number<KIND>::bits B;
    double sum = 0;
    walk<KIND, false>(from, to, n, [&](int first, const B* x, const B*, int count) {
        if (count == 1) ((B*)to)[first] = *x;
        else { Pack pack; memcpy(&pack, x, 16); *(Pack*)((B*)to + first) = pack; }
        for (int j = 0; j < count; j++) { double v = Number<KIND>::value(x[j]); sum += v * v; }
    });
    return sum;
}

template <int KIND> __device__ double squares(const void* from, int n, Rows rows) {
    typedef typename Number<KIND>::bits B;
    double sum = 0;
    walk<KIND, false>(from, from, n, [&](int first, const B* x, const B*, int count) {
        u32 which = 0;
        for (int j = 0; j < count; j++) {
            double v = Number<KIND>::value(x[j]); sum += v * v;
            which |= (v != 0) << j;
        }
        rows.mark(first, which, count);
    });
    return sum;
}

template <int KIND> __device__ void difference(
    const void* now, const void* before, int n, Rows rows, double& changed, double& sum) {
    typedef typename Number<KIND>::bits B;
    int differ = 0; double squared = 0;
    walk<KIND, true>(now, before, n, [&](int first, const B* x, const B* y, int count) {
        u32 which = 0;
        for (int j = 0; j < count; j++) {
            double d = Number<KIND>::value(x[j]) - Number<KIND>::value(y[j]);
            // What is NaN, or infinite, and stays the same has not changed.
            bool differs = x[j] != y[j];
            squared += differs ? d * d : 0; differ += differs; which |= differs << j;
        }
        rows.mark(first, which, count);
    });
    changed = differ; sum = squared;
}

// What one block works on. `bytes` and `start` are of its first element.
struct Work {
    const i64 *about, *live; i64 tile, start; int n, size;
    __device__ Work(const i64* all, const i64* lives, const int* tiles, int first) {
        tile = (i64)first + blockIdx.x;
        i64 p = tiles[2 * tile];
        about = all + 8 * p; live = lives + 3 * p;
        start = (i64)tiles[2 * tile + 1] * TILE;
        i64 left = about[0] - start;
        n = left < TILE ? left : TILE;
        size = width(about[1]);
    }
    static __device__ int width(i64 kind) { return kind == 0 ? 4 : kind == 3 ? 8 : 2; }
};

extern "C" __global__ void keep(const i64* about, const i64* live, const int* tiles, u8* kept,
                                double* partial, u8* flags, int first, int all, int rows) {
    Work w(about, live, tiles, first);
    i64 gradient = w.live[2];
    if (gradient < 0) return;
    const u8* from = (const u8*)w.live[0] + w.start * w.size;
    u8* to = kept + w.about[2] + w.start * w.size;
    double own = 0, slope = 0;
    switch (w.about[1]) {
        case 0: own = copy<0>(from, to, w.n); break;
        case 1: own = copy<1>(from, to, w.n); break;
        case 2: own = copy<2>(from, to, w.n); break;
        default: own = copy<3>(from, to, w.n);
    }
    if (gradient < 4) {
        Rows marks(w.about, flags + rows, w.start);
        const u8* g = (const u8*)w.live[1] + w.start * Work::width(gradient);
        switch (gradient) {
            case 0: slope = squares<0>(g, w.n, marks); break;
            case 1: slope = squares<1>(g, w.n, marks); break;
            case 2: slope = squares<2>(g, w.n, marks); break;
            default: slope = squares<3>(g, w.n, marks);
        }
    }
    own = block_sum(own); slope = block_sum(slope);
    if (threadIdx.x == 0) {
        partial[2 * (i64)all + w.tile] = slope;
        partial[3 * (i64)all + w.tile] = own;
    }
}

extern "C" __global__ void compare(const i64* about, const i64* live, const int* tiles,
                                   const u8* kept, double* partial, u8* flags, int first, int all) {
    Work w(about, live, tiles, first);
    if (w.live[2] < 0) return;
    const u8* now = (const u8*)w.live[0] + w.start * w.size;
    const u8* before = kept + w.about[2] + w.start * w.size;
    Rows marks(w.about, flags, w.start);
    double changed = 0, sum = 0;
    switch (w.about[1]) {
        case 0: difference<0>(now, before, w.n, marks, changed, sum); break;
        case 1: difference<1>(now, before, w.n, marks, changed, sum); break;
        case 2: difference<2>(now, before, w.n, marks, changed, sum); break;
        default: difference<3>(now, before, w.n, marks, changed, sum);
    }
    changed = block_sum(changed); sum = block_sum(sum);
    if (threadIdx.x == 0) { partial[w.tile] = changed; partial[all + w.tile] = sum; }
}

extern "C" __global__ void finish(const i64* about, const i64* live, const double* partial,
                                  u8* flags, double* result, int all, int rows) {
    const i64* a = about + 8 * (i64)blockIdx.x;
    if (a[1] < 0) return;
    i64 gradient = live[3 * (i64)blockIdx.x + 2];
    double* out = result + 6 * (i64)blockIdx.x;
    for (int k = 0; k < 4; k++) {
        double sum = 0;
        if (gradient >= 0)
            for (i64 t = a[3] + threadIdx.x; t < a[4]; t += blockDim.x)
                sum += partial[k * (i64)all + t];
        sum = block_sum(sum);
        // -1: not known.
        if (gradient < 0 && k >= 2 || gradient == 4 && k == 2) sum = -1;
        if (threadIdx.x == 0) out[k] = sum;
    }
    for (int k = 0; k < 2; k++) {
        double sum = 0;
        u8* own = flags + k * (i64)rows + a[5];
        i64 mine = a[5] < 0 ? 0 : a[7];
        // Loads by themselves are many at a time; a store between two makes the second wait.
        for (i64 r = threadIdx.x; r < mine; r += blockDim.x) sum += own[r];
        for (i64 r = threadIdx.x; r < mine; r += blockDim.x) own[r] = 0;
        sum = block_sum(sum);
        if (a[5] < 0 || k == 1 && (gradient < 0 || gradient == 4)) sum = -1;
        if (threadIdx.x == 0) out[4 + k] = sum;
    }
}
"""
)

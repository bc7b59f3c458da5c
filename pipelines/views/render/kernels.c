/* Views on a CPU: crop and antialiased resize of uint8 images, then colour, blur, solarize and normalisation.
 *
 * The same steps as render.py takes with torch. The resize gives torch's bytes exactly; the rest works on floats in
 * 0-255. Plain C that compilers vectorise; the whole of it is compiled once for every instruction set below, and the best
 * one is chosen when called. Sums have a fixed order and nothing is contracted (-ffp-contract=off), so all give the same
 * bits. One call runs on one thread; `kernels.py` calls it without Python's lock. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(_MSC_VER)
#define INLINE static __forceinline
#define EXPORT __declspec(dllexport)
#define restrict __restrict
#else
#define INLINE static inline __attribute__((always_inline))
#define EXPORT __attribute__((visibility("default")))
#endif

#define TILE 512 /* pixels that all colour steps pass through at once */
#define LANES 16 /* elements that go through a loop together */
#define WHITE 255.0f
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define ABS(a) ((a) < 0 ? -(a) : (a))
#define LUMA(r, g, b) (0.2989f * (r) + 0.587f * (g) + 0.114f * (b))
#define PADDED(n) (((n) + LANES - 1) / LANES * LANES)

#ifndef SOURCE_DIGEST
#define SOURCE_DIGEST unknown
#endif
#define AS_TEXT(word) #word
#define TEXT(word) AS_TEXT(word)

enum { BRIGHTNESS, CONTRAST, SATURATION, HUE, GREY };
enum { GREY_AFTER = 1, GREY_BEFORE = 2 };
enum { DONE = 0, OUT_OF_MEMORY = 1 };

/* A crop: first byte (red, green, blue of its upper left pixel), bytes from row to row, extent in pixels. */
typedef struct {
    int64_t address, pitch, height, width, mirrored;
} Crop;

/* Colour of one view: jitter in its order (factors that change nothing are skipped), blur radius, solarize threshold. */
typedef struct {
    float grey, kind[4], factor[4], radius, threshold;
} Look;

/* What is the same for all views of a call. taps: weights of the blur's centre and of one side, max_taps a view. */
typedef struct {
    int64_t count, side, cubic, max_taps;
    const Crop *crops;
    const Look *looks;
    const float *taps, *scale, *shift;
    const int64_t *places;
    float *out;
} Call;

/* ---- Resize: fixed-point weights as in torch's and Pillow's uint8 kernels --------------------------------------- */

/* One axis: view pixel i is the sum of `taps[i]` source pixels from `first[i]` on, by `weights + i * most`, / 2^bits. */
typedef struct {
    int32_t *first, *taps, *weights;
    double *exact;
    int most, bits;
} Axis;

INLINE double filter(double x, int cubic) {
    x = ABS(x);
    if (!cubic) return x < 1 ? 1 - x : 0;
    if (x < 1) return (1.5 * x - 2.5) * x * x + 1;
    return x < 2 ? -0.5 * (((x - 5) * x + 8) * x - 4) : 0;
}

INLINE double reach_of(int64_t extent, int64_t side, int cubic) {
    return (cubic ? 2.0 : 1.0) * MAX((double)extent / side, 1.0);
}

INLINE int most_taps(int64_t extent, int64_t side, int cubic) { return 2 * (int)(reach_of(extent, side, cubic) + 1) + 1; }

INLINE void fill_axis(Axis *axis, int64_t extent, int side, int cubic, int mirrored) {
    const double scale = (double)extent / side, reach = reach_of(extent, side, cubic);
    const double shrink = scale > 1 ? 1 / scale : 1;
    double largest = 0;
    axis->most = most_taps(extent, side, cubic);
    for (int i = 0; i < side; i++) {
        const int place = mirrored ? side - 1 - i : i;
        const double centre = scale * (i + 0.5);
        const double from = centre - reach + 0.5, to = centre + reach + 0.5;
        const int first = from > 0 ? (int)from : 0;
        int taps = (int)(to < extent ? to : extent) - first;
        taps = MIN(MAX(taps, 0), axis->most);
        double *weights = axis->exact + (int64_t)place * axis->most, total = 0;
        for (int t = 0; t < taps; t++) {
            weights[t] = filter((t + first - centre + 0.5) * shrink, cubic);
            total += weights[t];
        }
        for (int t = 0; t < taps && total != 0; t++) {
            weights[t] /= total;
            largest = MAX(largest, weights[t]);
        }
        axis->first[place] = first;
        axis->taps[place] = taps;
    }
    axis->bits = 0;
    while (axis->bits < 22 && (int)(0.5 + largest * (1 << (axis->bits + 1))) < 1 << 15) axis->bits++;
    for (int i = 0; i < side; i++) {
        for (int t = 0; t < axis->taps[i]; t++) {
            const int64_t at = (int64_t)i * axis->most + t;
            const double weight = axis->exact[at] * (1 << axis->bits);
            axis->weights[at] = (int32_t)(weight < 0 ? weight - 0.5 : weight + 0.5);
        }
    }
}

#if defined(__GNUC__) && (defined(__clang__) || __GNUC__ >= 12) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
/* Vectors by name: compilers keep these in registers, arrays of the same size not always. */
typedef uint8_t Bytes __attribute__((vector_size(LANES)));
typedef uint16_t Words __attribute__((vector_size(LANES)));
typedef int32_t Half __attribute__((vector_size(2 * LANES)));
typedef struct {
    Half low, high;
} Sum;
#define INTERLEAVE(a, b, n)                                                                                   \
    __builtin_shufflevector(a, b, n, 16 + n, 1 + n, 17 + n, 2 + n, 18 + n, 3 + n, 19 + n, 4 + n, 20 + n, 5 + n, \
                            21 + n, 6 + n, 22 + n, 7 + n, 23 + n)

/* 16 x 16 bytes: four perfect shuffles. */
INLINE void transpose(Bytes *a) {
    Bytes b[LANES];
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < LANES / 2; i++) {
            b[2 * i] = INTERLEAVE(a[i], a[i + LANES / 2], 0);
            b[2 * i + 1] = INTERLEAVE(a[i], a[i + LANES / 2], 8);
        }
        for (int i = 0; i < LANES / 2; i++) {
            a[2 * i] = INTERLEAVE(b[i], b[i + LANES / 2], 0);
            a[2 * i + 1] = INTERLEAVE(b[i], b[i + LANES / 2], 8);
        }
    }
}

INLINE Sum sum_of(int32_t start) { return (Sum){(Half){0} + start, (Half){0} + start}; }

INLINE void add(Sum *sum, const uint8_t *from, int32_t weight) {
    Bytes bytes;
    memcpy(&bytes, from, sizeof bytes);
    sum->low += __builtin_convertvector((Words)INTERLEAVE(bytes, (Bytes){0}, 0), Half) * weight;
    sum->high += __builtin_convertvector((Words)INTERLEAVE(bytes, (Bytes){0}, 8), Half) * weight;
}

/* Two taps at once, exactly: weights fit 16 bits. Where `wide`, by the instruction that multiplies words and adds
 * neighbours, which no compiler finds in loops like these; only code for processors that have it says so. */
INLINE void add_two(Sum *sum, const uint8_t *from, const uint8_t *next, int32_t weight, int32_t next_weight, int wide) {
#if defined(__x86_64__)
    typedef uint16_t Pairs __attribute__((vector_size(2 * LANES)));
    if (wide) {
        const Half weights = (Half){0} + (int32_t)((uint16_t)weight | (uint32_t)next_weight << 16);
        Half low, high;
        Bytes a, b;
        memcpy(&a, from, sizeof a);
        memcpy(&b, next, sizeof b);
        __asm__("vpmaddwd %2, %1, %0" : "=x"(low) : "x"(__builtin_convertvector(INTERLEAVE(a, b, 0), Pairs)), "x"(weights));
        __asm__("vpmaddwd %2, %1, %0" : "=x"(high) : "x"(__builtin_convertvector(INTERLEAVE(a, b, 8), Pairs)), "x"(weights));
        sum->low += low;
        sum->high += high;
        return;
    }
#endif
    (void)wide;
    add(sum, from, weight);
    add(sum, next, next_weight);
}

INLINE void levels_of(const Sum *sum, int bits, int32_t *levels) {
    memcpy(levels, sum, sizeof *sum);
    for (int i = 0; i < LANES; i++) levels[i] = MIN(MAX(levels[i] >> bits, 0), 255);
}
#else
typedef struct {
    uint8_t lane[LANES];
} Bytes;
typedef struct {
    int32_t lane[LANES];
} Sum;

INLINE void transpose(Bytes *rows) {
    for (int i = 0; i < LANES; i++) {
        for (int j = 0; j < i; j++) {
            const uint8_t kept = rows[i].lane[j];
            rows[i].lane[j] = rows[j].lane[i];
            rows[j].lane[i] = kept;
        }
    }
}

INLINE Sum sum_of(int32_t start) {
    Sum sum;
    for (int i = 0; i < LANES; i++) sum.lane[i] = start;
    return sum;
}

INLINE void add(Sum *sum, const uint8_t *from, int32_t weight) {
    for (int i = 0; i < LANES; i++) sum->lane[i] += weight * from[i];
}

INLINE void add_two(Sum *sum, const uint8_t *from, const uint8_t *next, int32_t weight, int32_t next_weight, int wide) {
    (void)wide;
    add(sum, from, weight);
    add(sum, next, next_weight);
}

INLINE void levels_of(const Sum *sum, int bits, int32_t *levels) {
    for (int i = 0; i < LANES; i++) levels[i] = MIN(MAX(sum->lane[i] >> bits, 0), 255);
}
#endif

/* Columns of the view from all rows of the crop, 16 rows at a time: tile [width 3][16] -> narrow [3][pitch][16], turned
 * back into planes [3][height][pitch]. */
INLINE void resize_columns(const Crop *crop, const Axis *axis, int side, uint8_t *restrict tile,
                           uint8_t *restrict narrow, uint8_t *restrict planes, int wide) {
    const int64_t bytes = 3 * crop->width, pitch = PADDED(side);
    const int bits = axis->bits;
    Bytes block[LANES];
    int32_t levels[LANES];
    memset(block, 0, sizeof block);
    for (int64_t top = 0; top < crop->height; top += LANES) {
        const int rows = (int)MIN(LANES, crop->height - top);
        const uint8_t *source = (const uint8_t *)(intptr_t)crop->address + top * crop->pitch;
        for (int64_t x = 0; x < bytes; x += LANES) {
            const int64_t width = MIN(LANES, bytes - x);
            for (int row = 0; row < rows; row++) {
                const uint8_t *from = source + row * crop->pitch + x;
                if (width == LANES) memcpy(&block[row], from, LANES);
                else memcpy(&block[row], from, width);
            }
            transpose(block);
            for (int i = 0; i < LANES; i++) memcpy(tile + (x + i) * LANES, &block[i], LANES);
        }
        for (int x = 0; x < side; x++) {
            const int32_t *weights = axis->weights + (int64_t)x * axis->most;
            const uint8_t *from = tile + (int64_t)axis->first[x] * 3 * LANES;
            Sum red = sum_of(1 << (bits - 1)), green = red, blue = red;
            int t = 0;
            for (; t + 1 < axis->taps[x]; t += 2, from += 6 * LANES) {
                add_two(&red, from, from + 3 * LANES, weights[t], weights[t + 1], wide);
                add_two(&green, from + LANES, from + 4 * LANES, weights[t], weights[t + 1], wide);
                add_two(&blue, from + 2 * LANES, from + 5 * LANES, weights[t], weights[t + 1], wide);
            }
            if (t < axis->taps[x]) {
                add(&red, from, weights[t]);
                add(&green, from + LANES, weights[t]);
                add(&blue, from + 2 * LANES, weights[t]);
            }
            const Sum sums[3] = {red, green, blue};
            for (int c = 0; c < 3; c++) {
                levels_of(&sums[c], bits, levels);
                uint8_t *to = narrow + (c * pitch + x) * LANES;
                for (int i = 0; i < LANES; i++) to[i] = (uint8_t)levels[i];
            }
        }
        for (int c = 0; c < 3; c++) {
            for (int64_t x = 0; x < pitch; x += LANES) {
                for (int i = 0; i < LANES; i++) memcpy(&block[i], narrow + (c * pitch + x + i) * LANES, LANES);
                transpose(block);
                for (int row = 0; row < rows; row++)
                    memcpy(planes + (c * crop->height + top + row) * pitch + x, &block[row], LANES);
            }
        }
    }
}

/* Rows of the view from planes [3][height][pitch]; whole levels, as floats. */
INLINE void resize_rows(const uint8_t *planes, int64_t height, const Axis *axis, int side, float *restrict out,
                        int wide) {
    const int64_t pitch = PADDED(side);
    const int bits = axis->bits;
    int32_t levels[LANES];
    for (int c = 0; c < 3; c++) {
        for (int y = 0; y < side; y++) {
            const int32_t *weights = axis->weights + (int64_t)y * axis->most;
            const uint8_t *source = planes + (c * height + axis->first[y]) * pitch;
            float *restrict to = out + ((int64_t)c * side + y) * side;
            for (int x = 0; x < side; x += LANES) {
                Sum sum = sum_of(1 << (bits - 1));
                int t = 0;
                for (; t + 1 < axis->taps[y]; t += 2)
                    add_two(&sum, source + t * pitch + x, source + (t + 1) * pitch + x, weights[t], weights[t + 1], wide);
                if (t < axis->taps[y]) add(&sum, source + t * pitch + x, weights[t]);
                levels_of(&sum, bits, levels);
                if (x + LANES <= side)
                    for (int i = 0; i < LANES; i++) to[x + i] = (float)levels[i];
                else
                    for (int i = 0; i < side - x; i++) to[x + i] = (float)levels[i];
            }
        }
    }
}

/* ---- Colour, on tiles of three channels -------------------------------------------------------------------------- */

INLINE float clamp(float x) { return MIN(MAX(x, 0.0f), WHITE); }

INLINE void brightness(float *restrict r, float *restrict g, float *restrict b, int n, float f) {
    for (int i = 0; i < n; i++) {
        r[i] = clamp(f * r[i]);
        g[i] = clamp(f * g[i]);
        b[i] = clamp(f * b[i]);
    }
}

INLINE void contrast(float *restrict r, float *restrict g, float *restrict b, int n, float f, float mean) {
    const float add = (1 - f) * mean;
    for (int i = 0; i < n; i++) {
        r[i] = clamp(f * r[i] + add);
        g[i] = clamp(f * g[i] + add);
        b[i] = clamp(f * b[i] + add);
    }
}

INLINE void saturation(float *restrict r, float *restrict g, float *restrict b, int n, float f) {
    for (int i = 0; i < n; i++) {
        const float add = (1 - f) * LUMA(r[i], g[i], b[i]);
        r[i] = clamp(f * r[i] + add);
        g[i] = clamp(f * g[i] + add);
        b[i] = clamp(f * b[i] + add);
    }
}

/* See colour_batch._shift_hue for the formula. */
INLINE float channel(float hue, float chroma, float least, float largest, float centre) {
    float far = ABS(hue - centre * chroma) - 3 * chroma;
    far = ABS(far) - 3 * chroma;
    far = ABS(far);
    return MIN(MAX(least + 2 * chroma - far, least), largest);
}

INLINE void shift_hue(float *restrict r, float *restrict g, float *restrict b, int n, float turns) {
    for (int i = 0; i < n; i++) {
        const float R = r[i], G = g[i], B = b[i];
        const float inner = MIN(G, B), least = MIN(inner, R), outer = MAX(G, B), largest = MAX(outer, R);
        const float chroma = largest - least, across = G - B;
        const float size = 2 * (inner - least) + largest - R;
        const float hue = across + (across < 0 ? -size : size) + 6 * turns * chroma;
        r[i] = channel(hue, chroma, least, largest, 0);
        g[i] = channel(hue, chroma, least, largest, 2);
        b[i] = channel(hue, chroma, least, largest, -2);
    }
}

INLINE void grey(float *restrict r, float *restrict g, float *restrict b, int n) {
    for (int i = 0; i < n; i++) r[i] = g[i] = b[i] = LUMA(r[i], g[i], b[i]);
}

INLINE double luma_sum(const float *restrict r, const float *restrict g, const float *restrict b, int n) {
    float lane[LANES] = {0};
    double sum = 0;
    int i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++) lane[k] += LUMA(r[i + k], g[i + k], b[i + k]);
    for (; i < n; i++) sum += LUMA(r[i], g[i], b[i]);
    for (int k = 0; k < LANES; k++) sum += lane[k];
    return sum;
}

/* Solarize and normalise. */
INLINE void close_tile(float *restrict x, int64_t n, float threshold, float scale, float shift) {
    if (threshold <= WHITE)
        for (int64_t i = 0; i < n; i++) x[i] = x[i] >= threshold ? WHITE - x[i] : x[i];
    for (int64_t i = 0; i < n; i++) x[i] = x[i] * scale - shift;
}

/* ---- Blur --------------------------------------------------------------------------------------------------------- */

INLINE int64_t reflected(int64_t at, int64_t side) {
    return at < 0 ? -at : (at >= side ? 2 * (side - 1) - at : at);
}

/* to[x] = taps[0] at[x] + sum over k of taps[k] (before[k][x] + after[k][x]), x in 0 ... n - 1. */
#define WEIGHTED(to, n, taps, radius, at, before, after)                                        \
    do {                                                                                        \
        int64_t x = 0;                                                                          \
        for (; x + 2 * LANES <= (n); x += 2 * LANES) {                                          \
            float sum[2 * LANES];                                                               \
            for (int i = 0; i < 2 * LANES; i++) sum[i] = (taps)[0] * (at)[x + i];               \
            for (int k = 1; k <= (radius); k++) {                                               \
                const float *restrict low = (before), *restrict high = (after), weight = (taps)[k]; \
                for (int i = 0; i < 2 * LANES; i++) sum[i] += weight * (low[x + i] + high[x + i]); \
            }                                                                                   \
            for (int i = 0; i < 2 * LANES; i++) (to)[x + i] = sum[i];                           \
        }                                                                                       \
        for (; x < (n); x++) {                                                                  \
            float sum = (taps)[0] * (at)[x];                                                    \
            for (int k = 1; k <= (radius); k++) sum += (taps)[k] * ((before)[x] + (after)[x]);  \
            (to)[x] = sum;                                                                      \
        }                                                                                       \
    } while (0)

/* Down the columns into `spare` [side side], then along the rows, each padded with its reflection in `row` [3 side]. */
INLINE void blur(float *plane, int64_t side, int radius, const float *taps, float *spare, float *row) {
    for (int64_t y = 0; y < side; y++) {
        float *restrict to = spare + y * side;
        const float *at = plane + y * side;
        WEIGHTED(to, side, taps, radius, at, plane + reflected(y - k, side) * side, plane + reflected(y + k, side) * side);
    }
    for (int64_t y = 0; y < side; y++) {
        const float *from = spare + y * side;
        float *restrict to = plane + y * side;
        memcpy(row + radius, from, side * sizeof(float));
        for (int k = 1; k <= radius; k++) {
            row[radius - k] = from[k];
            row[radius + side - 1 + k] = from[side - 1 - k];
        }
        const float *at = row + radius;
        WEIGHTED(to, side, taps, radius, at, at - k, at + k);
    }
}

/* ---- One view ----------------------------------------------------------------------------------------------------- */

/* Everything after the resize, in place. One pass over the view up to each contrast, which needs the mean of what came
 * before it. */
INLINE void finish(float *view, const Call *call, int64_t v, float *spare, float *row) {
    const Look *look = call->looks + v;
    const int64_t side = call->side, area = side * side;
    const int radius = (int)look->radius;
    int kinds[6], steps = 0, step = 0;
    float factors[6];
    if (look->grey == GREY_BEFORE) kinds[steps++] = GREY;
    for (int i = 0; i < 4; i++) {
        if (look->factor[i] == (look->kind[i] == HUE ? 0.0f : 1.0f)) continue;
        factors[steps] = look->factor[i];
        kinds[steps++] = (int)look->kind[i];
    }
    if (look->grey == GREY_AFTER) kinds[steps++] = GREY;
    double mean = 0;
    int has_mean = 0;
    for (int last = 0; ; step = last, has_mean = 1) {
        last = step;
        while (last < steps && (kinds[last] != CONTRAST || (last == step && has_mean))) last++;
        const int closing = last == steps;
        double sum = 0;
        for (int64_t at = 0; at < area; at += TILE) {
            const int n = (int)MIN(TILE, area - at);
            float *r = view + at, *g = view + area + at, *b = view + 2 * area + at;
            for (int s = step; s < last; s++) {
                switch (kinds[s]) {
                case BRIGHTNESS: brightness(r, g, b, n, factors[s]); break;
                case CONTRAST: contrast(r, g, b, n, factors[s], (float)mean); break;
                case SATURATION: saturation(r, g, b, n, factors[s]); break;
                case HUE: shift_hue(r, g, b, n, factors[s]); break;
                default: grey(r, g, b, n);
                }
            }
            if (!closing) sum += luma_sum(r, g, b, n);
            else if (!radius)
                for (int c = 0; c < 3; c++)
                    close_tile(view + c * area + at, n, look->threshold, call->scale[c], call->shift[c]);
        }
        if (closing) break;
        mean = sum / area;
    }
    for (int c = 0; c < 3 && radius; c++) {
        blur(view + c * area, side, radius, call->taps + v * call->max_taps, spare, row);
        close_tile(view + c * area, area, look->threshold, call->scale[c], call->shift[c]);
    }
}

/* Working memory of a call, cut from one block. */
typedef struct {
    uint8_t *block, *tile, *narrow, *planes;
    float *spare, *row;
    Axis across, down;
} Scratch;

static void *take(uint8_t **free_bytes, int64_t bytes) {
    void *taken = *free_bytes;
    *free_bytes += (bytes + 63) / 64 * 64;
    return taken;
}

static int make_scratch(Scratch *scratch, const Call *call) {
    const int64_t side = call->side, pitch = PADDED(side);
    int64_t height = 0, width = 0;
    for (int64_t v = 0; call->crops && v < call->count; v++) {
        height = MAX(height, call->crops[v].height);
        width = MAX(width, call->crops[v].width);
    }
    const int64_t most = most_taps(MAX(height, width), side, (int)call->cubic) * side;
    const int64_t sizes[] = {PADDED(3 * width) * LANES, 3 * pitch * LANES, 3 * height * pitch,
                             side * side * 4, 3 * side * 4, 2 * side * 4, 2 * side * 4, 2 * most * 4, 2 * most * 8};
    int64_t bytes = 64;
    for (int i = 0; i < 9; i++) bytes += (sizes[i] + 63) / 64 * 64;
    scratch->block = calloc(1, bytes);
    if (!scratch->block) return OUT_OF_MEMORY;
    uint8_t *rest = scratch->block + (64 - (uintptr_t)scratch->block % 64) % 64;
    scratch->tile = take(&rest, sizes[0]);
    scratch->narrow = take(&rest, sizes[1]);
    scratch->planes = take(&rest, sizes[2]);
    scratch->spare = take(&rest, sizes[3]);
    scratch->row = take(&rest, sizes[4]);
    scratch->across.first = take(&rest, sizes[5]);
    scratch->across.taps = take(&rest, sizes[6]);
    scratch->across.weights = take(&rest, sizes[7]);
    scratch->across.exact = take(&rest, sizes[8]);
    scratch->down.first = scratch->across.first + side;
    scratch->down.taps = scratch->across.taps + side;
    scratch->down.weights = scratch->across.weights + most;
    scratch->down.exact = scratch->across.exact + most;
    return DONE;
}

/* wide: whether the processor is known to have AVX2. */
INLINE void render_all(const Call *call, Scratch *scratch, int wide) {
    const int side = (int)call->side, cubic = (int)call->cubic;
    for (int64_t v = 0; v < call->count; v++) {
        float *view = call->out + call->places[v] * 3 * side * side;
        if (call->crops) {
            const Crop *crop = call->crops + v;
            fill_axis(&scratch->across, crop->width, side, cubic, (int)crop->mirrored);
            fill_axis(&scratch->down, crop->height, side, cubic, 0);
            resize_columns(crop, &scratch->across, side, scratch->tile, scratch->narrow, scratch->planes, wide);
            resize_rows(scratch->planes, crop->height, &scratch->down, side, view, wide);
        }
        if (call->looks) finish(view, call, v, scratch->spare, scratch->row);
    }
}

/* ---- One copy for every instruction set --------------------------------------------------------------------------- */

static void render_baseline(const Call *call, Scratch *scratch) { render_all(call, scratch, 0); }

#if defined(__x86_64__) && defined(__GNUC__)
__attribute__((target("avx2"))) static void render_avx2(const Call *call, Scratch *scratch) {
    render_all(call, scratch, 1);
}
__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))) static void render_avx512(const Call *call,
                                                                                         Scratch *scratch) {
    render_all(call, scratch, 1);
}
static int num_copies(void) {
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2")) return 1;
    return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")
               ? 3
               : 2;
}
static void (*const COPIES[])(const Call *, Scratch *) = {render_baseline, render_avx2, render_avx512};
#else
static int num_copies(void) { return 1; }
static void (*const COPIES[])(const Call *, Scratch *) = {render_baseline};
#endif

EXPORT const char *viewkit_source(void) { return TEXT(SOURCE_DIGEST); }

/* How many copies this processor can run; the last is the fastest. */
EXPORT int32_t viewkit_copies(void) { return num_copies(); }

/* Views v = 0 ... count - 1 into out[places[v]], [*, 3, side, side]: resized from crops[v], or where `crops` is NULL from
 * what lies there (floats in 0-255); then finished by looks[v], or left in 0-255 where `looks` is NULL. */
EXPORT int32_t viewkit_render(int32_t copy, const Call *call) {
    Scratch scratch;
    if (make_scratch(&scratch, call)) return OUT_OF_MEMORY;
    COPIES[copy](call, &scratch);
    free(scratch.block);
    return DONE;
}

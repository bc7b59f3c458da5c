/* Colour, blur and normalisation of views on a CPU: the same steps as render.py with torch, in tiles that stay in the
 * innermost cache. `native.py` compiles and calls it. Values are floats in 0-255 until the normalisation. */
#include <stdint.h>

#define TILE 512
#define LANES 16
#define WHITE 255.0f
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define ABS(a) ((a) < 0 ? -(a) : (a))
#define LUMA(r, g, b) (0.2989f * (r) + 0.587f * (g) + 0.114f * (b))

enum { BRIGHTNESS, CONTRAST, SATURATION, HUE, GREY };

/* One view's numbers, in the order of native.PARAMETERS. */
typedef struct {
    float flip, steps, kind[5], factor[5], radius, threshold, scale[3], shift[3];
} View;

static float clamp(float x) { return MIN(MAX(x, 0.0f), WHITE); }

static void brightness(float *restrict r, float *restrict g, float *restrict b, int n, float f) {
    for (int i = 0; i < n; i++) {
        r[i] = clamp(f * r[i]);
        g[i] = clamp(f * g[i]);
        b[i] = clamp(f * b[i]);
    }
}

static void contrast(float *restrict r, float *restrict g, float *restrict b, int n, float f, float mean) {
    float add = (1 - f) * mean;
    for (int i = 0; i < n; i++) {
        r[i] = clamp(f * r[i] + add);
        g[i] = clamp(f * g[i] + add);
        b[i] = clamp(f * b[i] + add);
    }
}

static void saturation(float *restrict r, float *restrict g, float *restrict b, int n, float f) {
    for (int i = 0; i < n; i++) {
        float add = (1 - f) * LUMA(r[i], g[i], b[i]);
        r[i] = clamp(f * r[i] + add);
        g[i] = clamp(f * g[i] + add);
        b[i] = clamp(f * b[i] + add);
    }
}

/* See colour.shift_hue for the formula. */
static float channel(float hue, float chroma, float least, float largest, float centre) {
    float far = ABS(hue - centre * chroma) - 3 * chroma;
    far = 3 * chroma - ABS(far);
    far = ABS(far);
    return MIN(MAX(least + 2 * chroma - far, least), largest);
}

static void shift_hue(float *restrict r, float *restrict g, float *restrict b, int n, float turns) {
    for (int i = 0; i < n; i++) {
        float R = r[i], G = g[i], B = b[i];
        float inner = MIN(G, B), least = MIN(inner, R), outer = MAX(G, B), largest = MAX(outer, R);
        float chroma = largest - least, across = G - B;
        float size = 2 * (inner - least) + largest - R;
        float hue = across + (across < 0 ? -size : size) + 6 * turns * chroma;
        r[i] = channel(hue, chroma, least, largest, 0);
        g[i] = channel(hue, chroma, least, largest, 2);
        b[i] = channel(hue, chroma, least, largest, -2);
    }
}

static void grey(float *restrict r, float *restrict g, float *restrict b, int n) {
    for (int i = 0; i < n; i++) r[i] = g[i] = b[i] = LUMA(r[i], g[i], b[i]);
}

static double luma_sum(const float *restrict r, const float *restrict g, const float *restrict b, int n) {
    float lane[LANES] = {0};
    int i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++) lane[k] += LUMA(r[i + k], g[i + k], b[i + k]);
    double sum = 0;
    for (; i < n; i++) sum += LUMA(r[i], g[i], b[i]);
    for (int k = 0; k < LANES; k++) sum += lane[k];
    return sum;
}

/* Read one tile of one channel. A tile never crosses a row when the view is mirrored. */
static void load(const void *pixels, int is_bytes, int64_t start, int n, int mirrored, float *restrict to) {
    if (is_bytes) {
        const uint8_t *from = (const uint8_t *)pixels + start;
        if (mirrored) for (int i = 0; i < n; i++) to[i] = from[n - 1 - i];
        else for (int i = 0; i < n; i++) to[i] = from[i];
    } else {
        const float *from = (const float *)pixels + start;
        if (mirrored) for (int i = 0; i < n; i++) to[i] = from[n - 1 - i];
        else for (int i = 0; i < n; i++) to[i] = from[i];
    }
}

static void finish_tile(float *restrict x, int n, float threshold, float scale, float shift) {
    if (threshold <= WHITE) for (int i = 0; i < n; i++) x[i] = x[i] >= threshold ? WHITE - x[i] : x[i];
    for (int i = 0; i < n; i++) x[i] = x[i] * scale - shift;
}

static int reflected(int at, int side) { return at < 0 ? -at : (at >= side ? 2 * (side - 1) - at : at); }

/* Rows, then columns; `taps` are the weights of the centre and of one side. */
static void blur(float *plane, int side, int radius, const float *taps, float *spare, float *row) {
    for (int y = 0; y < side; y++) {
        float *restrict to = spare + (int64_t)y * side;
        const float *restrict at = plane + (int64_t)y * side;
        for (int x = 0; x < side; x++) to[x] = taps[0] * at[x];
        for (int k = 1; k <= radius; k++) {
            const float *restrict above = plane + (int64_t)reflected(y - k, side) * side;
            const float *restrict below = plane + (int64_t)reflected(y + k, side) * side;
            float weight = taps[k];
            for (int x = 0; x < side; x++) to[x] += weight * (above[x] + below[x]);
        }
    }
    for (int y = 0; y < side; y++) {
        const float *restrict from = spare + (int64_t)y * side;
        float *restrict to = plane + (int64_t)y * side;
        for (int x = 0; x < side; x++) row[radius + x] = from[x];
        for (int k = 1; k <= radius; k++) {
            row[radius - k] = from[k];
            row[radius + side - 1 + k] = from[side - 1 - k];
        }
        for (int x = 0; x < side; x++) to[x] = taps[0] * row[radius + x];
        for (int k = 1; k <= radius; k++) {
            const float *restrict before = row + radius - k, *restrict after = row + radius + k;
            float weight = taps[k];
            for (int x = 0; x < side; x++) to[x] += weight * (before[x] + after[x]);
        }
    }
}

/* Views 0 ... count - 1. pixels: uint8 0-255 or float 0-255, of channel c of view v from v * view_stride +
 * c * channel_stride on (in elements), rows and columns contiguous. scratch: side * side + 3 * side floats.
 * out: [*, 3, side, side], view v goes to places[v]. taps: max_taps weights a view. */
void viewkit_finish(const void *pixels, int32_t is_bytes, int64_t view_stride, int64_t channel_stride, int64_t count,
                    int32_t side, const View *views, const float *taps, int64_t max_taps, float *scratch, float *out,
                    const int64_t *places) {
    const int area = side * side;
    for (int64_t v = 0; v < count; v++) {
        const View *view = views + v;
        const int steps = (int)view->steps, radius = (int)view->radius, mirrored = view->flip != 0;
        float *to[3];
        for (int c = 0; c < 3; c++) to[c] = out + (places[v] * 3 + c) * area;
        const int span = mirrored ? side : TILE; /* a mirrored tile is a whole row, or as much of one as fits */
        int step = 0, fresh = 1;
        double mean = 0;
        do { /* one pass over the view up to the next contrast, which needs the mean of what came before it */
            int last = step;
            while (last < steps && !(view->kind[last] == CONTRAST && last > step)) {
                if (view->kind[last] == CONTRAST && fresh) break;
                last++;
            }
            const int closing = last == steps;
            double sum = 0;
            float tile[3][TILE];
            for (int row = 0; row < area; row += span) {
                const int width = MIN(span, area - row);
                for (int at = 0; at < width; at += TILE) {
                    const int n = MIN(TILE, width - at);
                    for (int c = 0; c < 3; c++) {
                        if (!fresh) {
                            load(to[c], 0, row + at, n, 0, tile[c]);
                            continue;
                        }
                        int64_t start = v * view_stride + c * channel_stride + row;
                        start += mirrored ? width - at - n : at;
                        load(pixels, is_bytes, start, n, mirrored, tile[c]);
                    }
                    float *r = tile[0], *g = tile[1], *b = tile[2];
                    for (int s = step; s < last; s++) {
                        const float f = view->factor[s];
                        switch ((int)view->kind[s]) {
                        case BRIGHTNESS: brightness(r, g, b, n, f); break;
                        case CONTRAST: contrast(r, g, b, n, f, (float)mean); break;
                        case SATURATION: saturation(r, g, b, n, f); break;
                        case HUE: shift_hue(r, g, b, n, f); break;
                        default: grey(r, g, b, n);
                        }
                    }
                    if (!closing) sum += luma_sum(r, g, b, n);
                    for (int c = 0; c < 3; c++) {
                        if (closing && !radius) finish_tile(tile[c], n, view->threshold, view->scale[c], view->shift[c]);
                        float *restrict dest = to[c] + row + at;
                        for (int i = 0; i < n; i++) dest[i] = tile[c][i];
                    }
                }
            }
            mean = sum / area;
            step = last;
            fresh = 0;
            if (closing) break;
        } while (1);
        if (!radius) continue;
        for (int c = 0; c < 3; c++) {
            blur(to[c], side, radius, taps + v * max_taps, scratch, scratch + area);
            finish_tile(to[c], area, view->threshold, view->scale[c], view->shift[c]);
        }
    }
}

/* Attention of a step's new tokens on a CPU: to their own feed's tokens before them and to the stored pieces that they read, in one
   pass over keys and values. compiled_attention.py compiles this when a policy is loaded: -DSIZE=head size, -DNARROW where keys and
   values are stored as bfloat16, -DLANES=4, 8 or 16 for another width of vectors than the processor's.

   A segment's store is [layer][keys, values][head][capacity][SIZE]. A row is a new token with one of the `group` query heads of a key
   head. Of each row the sums so far are held relative to its largest score so far (best, total, and out), so no scores are kept. */
#include <stdint.h>
#include <string.h>

#define BLOCK 64 /* tokens at a time: their keys and values stay in the first cache while all rows read them */
#define MANY 6   /* rows from which it pays to turn the keys of a block around */

#ifdef NARROW
typedef uint16_t stored;
#else
typedef float stored;
#endif
#ifndef LANES /* numbers of a register: GCC takes wider vectors apart, one number at a time where it turns them around */
#if defined __AVX512F__
#define LANES 16
#elif defined __AVX__
#define LANES 8
#else
#define LANES 4
#endif
#endif
#if LANES == 16
#define LOW 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define HIGH 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#elif LANES == 8
#define LOW 0, 8, 1, 9, 2, 10, 3, 11
#define HIGH 4, 12, 5, 13, 6, 14, 7, 15
#else
#define LOW 0, 4, 1, 5
#define HIGH 2, 6, 3, 7
#endif
typedef float lanes __attribute__((vector_size(4 * LANES), aligned(4)));
#ifdef __clang__
#define PICK(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
typedef int32_t places __attribute__((vector_size(4 * LANES)));
#define PICK(a, b, ...) __builtin_shuffle(a, b, (places){__VA_ARGS__})
#endif

typedef struct {
  int64_t address;         /* of its first key of layer 0, head 0 */
  int64_t capacity, count; /* tokens */
  int64_t first, last;     /* rows that read it */
} piece;

typedef struct {
  const float *queries, *keys, *values;
  float *out, *scratch;
  int64_t query_token, query_head, key_token, key_head, value_token, value_head; /* strides */
  int64_t layer, heads, group, tokens;
  float scaling;
} step;

typedef struct { /* one key head of the step */
  float *query, *best, *total;
  float *out;
  int64_t out_token, group;
} rows;

static inline float exponential(float x) { /* x <= 0; within 3e-7 of 1 near it */
  x = x < -87.0f ? -87.0f : x;
  float whole = __builtin_rintf(x * 1.44269504f), rest = x - whole * 0.69314718056f;
  float value = 1.0f / 720;
  value = value * rest + 1.0f / 120;
  value = value * rest + 1.0f / 24;
  value = value * rest + 1.0f / 6;
  value = value * rest + 0.5f;
  value = value * rest + 1.0f;
  value = value * rest + 1.0f;
  int32_t power = ((int32_t)whole + 127) << 23;
  float scale;
  memcpy(&scale, &power, 4);
  return value * scale;
}

static void fold(const rows *r, int64_t row, float *restrict score, const float *restrict values, int64_t stride, int64_t count) {
  float *restrict out = r->out + row / r->group * r->out_token + row % r->group * SIZE;
  float best = r->best[row], total = 0, sum[SIZE];
  for (int64_t t = 0; t < count; t++) best = score[t] > best ? score[t] : best;
  float scale = exponential(r->best[row] - best);
  for (int64_t t = 0; t < count; t++) score[t] = exponential(score[t] - best);
  for (int64_t t = 0; t < count; t++) total += score[t];
  for (int d = 0; d < SIZE; d++) sum[d] = out[d] * scale;
  int64_t t = 0;
  for (; t + 4 <= count; t += 4, values += 4 * stride) /* four at a time: the additions to sum wait for each other */
    for (int d = 0; d < SIZE; d++)
      sum[d] += (score[t] * values[d] + score[t + 1] * values[stride + d])
              + (score[t + 2] * values[2 * stride + d] + score[t + 3] * values[3 * stride + d]);
  for (; t < count; t++, values += stride)
    for (int d = 0; d < SIZE; d++) sum[d] += score[t] * values[d];
  memcpy(out, sum, sizeof sum);
  r->best[row] = best;
  r->total[row] = r->total[row] * scale + total;
}

static void few(const rows *r, int64_t first, int64_t last, const float *keys, int64_t key_stride, const float *values,
                int64_t value_stride, int64_t count) {
  for (int64_t row = first; row < last; row++) {
    float score[BLOCK];
    const float *query = r->query + row * SIZE;
    for (int64_t t = 0; t < count; t++) {
      float sum = 0;
      for (int d = 0; d < SIZE; d++) sum += query[d] * keys[t * key_stride + d];
      score[t] = sum;
    }
    fold(r, row, score, values, value_stride, count);
  }
}

static void turn(const float *keys, lanes turned[SIZE][BLOCK / LANES], int64_t count) { /* keys [count][SIZE] */
  int64_t t = 0;
#if SIZE >= LANES
  for (; t + LANES <= count; t += LANES)
    for (int d = 0; d < SIZE; d = d + LANES < SIZE && d + 2 * LANES > SIZE ? SIZE - LANES : d + LANES) { /* the last two may overlap */
      lanes a[LANES], b[LANES];
      for (int i = 0; i < LANES; i++) a[i] = *(const lanes *)(keys + (t + i) * SIZE + d);
      for (int done = 1; done < LANES; done *= 2) { /* log2(LANES) interleavings turn a square around */
        for (int i = 0; i < LANES / 2; i++) {
          b[2 * i] = PICK(a[i], a[i + LANES / 2], LOW);
          b[2 * i + 1] = PICK(a[i], a[i + LANES / 2], HIGH);
        }
        memcpy(a, b, sizeof a);
      }
      for (int i = 0; i < LANES; i++) turned[d + i][t / LANES] = a[i];
    }
#endif
  for (; t < count; t++)
    for (int d = 0; d < SIZE; d++) ((float *)turned[d])[t] = keys[t * SIZE + d];
}

static void many(const rows *r, int64_t first, int64_t last, const float *keys, const float *values, int64_t count) {
  lanes turned[SIZE][BLOCK / LANES];
  if (count < BLOCK) memset(turned, 0, sizeof turned);
  turn(keys, turned, count);
  for (int64_t row = first; row < last; row++) {
    const float *query = r->query + row * SIZE;
    lanes sum[BLOCK / LANES] = {0};
    for (int d = 0; d < SIZE; d++)
      for (int part = 0; part < BLOCK / LANES; part++) sum[part] += query[d] * turned[d][part];
    fold(r, row, (float *)sum, values, SIZE, count);
  }
}

static const float *widened(const stored *from, float *to, int64_t count) {
#ifdef NARROW
  for (int64_t i = 0; i < count * SIZE; i++) {
    uint32_t bits = (uint32_t)from[i] << 16;
    memcpy(to + i, &bits, 4);
  }
  return to;
#else
  (void)to, (void)count;
  return from;
#endif
}

static void read_piece(const rows *r, const step *s, const piece *p, int64_t head) {
  float wide_keys[BLOCK * SIZE], wide_values[BLOCK * SIZE];
  const stored *keys = (const stored *)(intptr_t)p->address + (s->layer * 2 * s->heads + head) * p->capacity * SIZE;
  const stored *values = keys + s->heads * p->capacity * SIZE;
  for (int64_t begin = 0; begin < p->count; begin += BLOCK) {
    int64_t count = p->count - begin < BLOCK ? p->count - begin : BLOCK;
    const float *k = widened(keys + begin * SIZE, wide_keys, count), *v = widened(values + begin * SIZE, wide_values, count);
    if (p->last - p->first >= MANY) many(r, p->first, p->last, k, v, count);
    else few(r, p->first, p->last, k, SIZE, v, SIZE, count);
  }
}

static void read_own(const rows *r, const step *s, int64_t first, int64_t count, int64_t head) {
  const float *keys = s->keys + first * s->key_token + head * s->key_head;
  const float *values = s->values + first * s->value_token + head * s->value_head;
  for (int64_t begin = 0; begin < count; begin += BLOCK)
    for (int64_t token = begin; token < count; token++) {
      int64_t seen = token + 1 - begin < BLOCK ? token + 1 - begin : BLOCK;
      few(r, (first + token) * s->group, (first + token + 1) * s->group, keys + begin * s->key_token, s->key_token,
          values + begin * s->value_token, s->value_token, seen);
    }
}

void attend(const step *s, const piece *pieces, int64_t number, const int64_t *feeds, int64_t fed, int64_t from, int64_t until) {
  int64_t count = s->tokens * s->group;
  for (int64_t head = from; head < until; head++) {
    float *query = s->scratch + head * count * (SIZE + 2);
    rows r = {query, query + count * SIZE, query + count * (SIZE + 1), s->out + head * s->group * SIZE,
              s->heads * s->group * SIZE, s->group};
    for (int64_t row = 0; row < count; row++) {
      int64_t token = row / s->group, one = row % s->group;
      const float *given = s->queries + token * s->query_token + (head * s->group + one) * s->query_head;
      for (int d = 0; d < SIZE; d++) query[row * SIZE + d] = given[d] * s->scaling;
      memset(r.out + token * r.out_token + one * SIZE, 0, SIZE * sizeof(float));
      r.best[row] = -1e30f;
      r.total[row] = 0;
    }
    for (int64_t f = 0; f < fed; f++) read_own(&r, s, feeds[2 * f], feeds[2 * f + 1], head);
    for (const piece *p = pieces; p < pieces + number; p++) read_piece(&r, s, p, head);
    for (int64_t row = 0; row < count; row++) {
      float *out = r.out + row / s->group * r.out_token + row % s->group * SIZE, share = 1.0f / r.total[row];
      for (int d = 0; d < SIZE; d++) out[d] *= share;
    }
  }
}

/* Attention of a step's new tokens on a CPU: to their own feed's tokens before them and to the stored pieces that they read.
   compiled_attention.py compiles this when a policy is loaded: -DSIZE=head size, -DNARROW where keys and values are stored as
   bfloat16, -DLANES=4, 8 or 16 for another width of vectors than the processor's.

   A segment's store is [layer][keys, values][head][capacity][SIZE]. A row is a new token with one of the `group` query heads of a key
   head. A row's result has the same bits however its tokens are cut into pieces, blocks and steps, and whatever other rows there are:
   a score is a sum over the head's numbers in their order; the largest score of a row is the same in any order; the sum of its weights
   goes by position modulo WIDE; its values are added one token after the other. So the scores of a row are kept until all are there. */
#include <stdint.h>
#include <string.h>
#if defined __SSE__
#include <xmmintrin.h>
#endif

#define BLOCK 64 /* tokens at a time: their keys and values stay in the first cache while all rows read them */
#define PANEL 64 /* rows at a time: their scores stay in the second cache */
#define WIDE 16  /* sums of a row's weights, by position */
#define ABREAST 4 /* rows whose values are added side by side: the additions of one row wait for each other */

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
#if SIZE % LANES == 0
#define PART LANES
#elif SIZE % 8 == 0
#define PART 8
#elif SIZE % 4 == 0
#define PART 4
#else
#define PART 1
#endif
typedef float parts __attribute__((vector_size(4 * PART), aligned(4)));
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
  int64_t position;        /* of its first token */
} piece;

typedef struct {
  int64_t first, count; /* place of its first token in the step, tokens */
  int64_t position;     /* of its first token: so many are stored */
} feed;

typedef struct {
  const float *queries, *keys, *values;
  float *out;
  int64_t query_token, query_head, key_token, key_head, value_token, value_head; /* strides */
  int64_t layer, heads, group, tokens, longest; /* longest: room for a row's scores, BLOCK beyond the last one */
  float scaling;
} step;

typedef struct { /* the rows [first, last) of one key head */
  int64_t first, last, longest;
  float *scores; /* [PANEL][longest]: by position; then the weights */
  float query[PANEL][SIZE], out[PANEL][SIZE], total[PANEL];
} panel;

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

static void score(panel *p, int64_t first, int64_t last, const float *keys, int64_t count, int64_t position) {
  lanes turned[SIZE][BLOCK / LANES];
  if (count < BLOCK) memset(turned, 0, sizeof turned);
  turn(keys, turned, count);
  for (int64_t row = first; row < last; row++) { /* what is written beyond `count` is written again, or not read */
    const float *query = p->query[row - p->first];
    float *to = p->scores + (row - p->first) * p->longest + position;
    if (count <= LANES) {
      lanes sum = {0};
      for (int d = 0; d < SIZE; d++) sum += query[d] * turned[d][0];
      memcpy(to, &sum, sizeof sum);
    } else {
      lanes sum[BLOCK / LANES] = {0};
      for (int d = 0; d < SIZE; d++)
        for (int part = 0; part < BLOCK / LANES; part++) sum[part] += query[d] * turned[d][part];
      memcpy(to, sum, sizeof sum);
    }
  }
}

static void weigh(panel *p, int64_t row, int64_t seen, int64_t end) { /* scores become weights; those of [seen, end) are 0 */
  float *score = p->scores + (row - p->first) * p->longest, best[WIDE], total[WIDE] = {0}, largest = -1e30f, sum = 0;
  for (int i = 0; i < WIDE; i++) best[i] = largest;
  for (int64_t t = 0; t < seen; t += WIDE)
    for (int i = 0; i < WIDE; i++) {
      float one = t + i < seen ? score[t + i] : largest;
      best[i] = one > best[i] ? one : best[i];
    }
  for (int i = 0; i < WIDE; i++) largest = best[i] > largest ? best[i] : largest;
  for (int64_t t = 0; t < seen; t += WIDE)
    for (int i = 0; i < WIDE; i++) {
      float weight = t + i < seen ? exponential(score[t + i] - largest) : 0;
      score[t + i] = weight;
      total[i] += weight;
    }
  for (int i = 0; i < WIDE; i++) sum += total[i];
  p->total[row - p->first] = sum;
  for (int64_t t = seen; t < end; t++) score[t] = 0;
}

static inline __attribute__((always_inline)) void add(panel *p, int64_t row, const float *values, int64_t count, int64_t position,
                                                      int abreast) {
  parts sum[ABREAST][SIZE / PART]; /* vectors, since of plain numbers a compiler fuses some products with their sums, some not */
  const float *weights = p->scores + row * p->longest + position;
  memcpy(sum, p->out[row], abreast * SIZE * sizeof(float));
  for (int64_t t = 0; t < count; t++)
    for (int one = 0; one < abreast; one++)
      for (int d = 0; d < SIZE / PART; d++)
        sum[one][d] += weights[one * p->longest + t] * *(const parts *)(values + t * SIZE + d * PART);
  memcpy(p->out[row], sum, abreast * SIZE * sizeof(float));
}

static void add_values(panel *p, int64_t first, int64_t last, const float *values, int64_t count, int64_t position) {
  int64_t row = first - p->first, end = last - p->first;
  for (; row + ABREAST <= end; row += ABREAST) add(p, row, values, count, position, ABREAST);
  for (; row < end; row++) add(p, row, values, count, position, 1);
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

static const float *gathered(const float *from, int64_t stride, float *to, int64_t count) {
  for (int64_t t = 0; t < count; t++) memcpy(to + t * SIZE, from + t * stride, SIZE * sizeof(float));
  return to;
}

static int64_t later(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t sooner(int64_t a, int64_t b) { return a < b ? a : b; }

static void read_piece(panel *p, const step *s, const piece *one, int64_t head, int values) {
  int64_t first = later(one->first, p->first), last = sooner(one->last, p->last);
  const stored *keys = (const stored *)(intptr_t)one->address + (s->layer * 2 * s->heads + head) * one->capacity * SIZE;
  const stored *from = values ? keys + s->heads * one->capacity * SIZE : keys;
  float wide[BLOCK * SIZE];
  for (int64_t begin = 0; first < last && begin < one->count; begin += BLOCK) {
    int64_t count = sooner(one->count - begin, BLOCK), position = one->position + begin;
    const float *block = widened(from + begin * SIZE, wide, count);
    if (values) add_values(p, first, last, block, count, position);
    else score(p, first, last, block, count, position);
  }
}

static void read_own(panel *p, const step *s, const feed *f, int64_t head, int values) {
  int64_t last = sooner((f->first + f->count) * s->group, p->last), stride = values ? s->value_token : s->key_token;
  const float *from = values ? s->values + head * s->value_head : s->keys + head * s->key_head;
  float block[BLOCK * SIZE];
  for (int64_t begin = 0; begin < f->count; begin += BLOCK) { /* no row before a block reads it */
    int64_t first = later((f->first + begin) * s->group, p->first), count = sooner(f->count - begin, BLOCK);
    if (first >= last) continue;
    gathered(from + (f->first + begin) * stride, stride, block, count);
    if (values) add_values(p, first, last, block, count, f->position + begin);
    else score(p, first, last, block, count, f->position + begin);
  }
}

static void attend_panel(panel *p, const step *s, const piece *pieces, int64_t number, const feed *feeds, int64_t fed, int64_t head) {
  for (int64_t row = p->first; row < p->last; row++) {
    const float *given = s->queries + row / s->group * s->query_token + (head * s->group + row % s->group) * s->query_head;
    for (int d = 0; d < SIZE; d++) p->query[row - p->first][d] = given[d] * s->scaling;
  }
  memset(p->out, 0, sizeof p->out);
  for (int values = 0; values < 2; values++) { /* the pieces stand in the order of their positions, as values are added */
    for (const piece *one = pieces; one < pieces + number; one++) read_piece(p, s, one, head, values);
    for (const feed *f = feeds; f < feeds + fed; f++) {
      read_own(p, s, f, head, values);
      int64_t first = f->first * s->group, last = (f->first + f->count) * s->group;
      for (int64_t row = later(first, p->first); !values && row < sooner(last, p->last); row++)
        weigh(p, row, f->position + (row - first) / s->group + 1, f->position + f->count);
    }
  }
  for (int64_t row = p->first; row < p->last; row++) {
    float *out = s->out + (row / s->group * s->heads * s->group + head * s->group + row % s->group) * SIZE;
    float share = 1.0f / p->total[row - p->first];
    for (int d = 0; d < SIZE; d++) out[d] = p->out[row - p->first][d] * share;
  }
}

/* Sets that denormal numbers count as zeros, in this thread; returns what was set before. */
static uint64_t flushing(uint64_t restored, int restore) {
  uint64_t before = 0;
#if defined __SSE__
  before = _mm_getcsr();
  _mm_setcsr(restore ? restored : before | 0x8040);
#elif defined __aarch64__
  __asm__ volatile("mrs %0, fpcr" : "=r"(before));
  __asm__ volatile("msr fpcr, %0" : : "r"(restore ? restored : before | 1 << 24));
#endif
  return before;
}

void attend(const step *s, const piece *pieces, int64_t number, const feed *feeds, int64_t fed, int64_t from, int64_t until,
            float *scratch) { /* of PANEL * longest numbers */
  uint64_t before = flushing(0, 0);
  int64_t rows = s->tokens * s->group;
  for (int64_t head = from; head < until; head++)
    for (int64_t first = 0; first < rows; first += PANEL) {
      panel p;
      p.first = first, p.last = sooner(first + PANEL, rows), p.longest = s->longest, p.scores = scratch;
      attend_panel(&p, s, pieces, number, feeds, fed, head);
    }
  flushing(before, 1);
}

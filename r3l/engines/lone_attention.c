/* Attention of new tokens to stored ones that only they, or few others, read: no sharing, so memory bandwidth is all that
   counts, and a batched product of torch per request reaches a third of it. lone_attention.py compiles this when a policy
   is loaded: -DSIZE=head size, -DNARROW where keys and values are stored as bfloat16.

   A segment's store is [layer][keys, values][head][capacity][SIZE]; queries are [head][row][SIZE], weights [head][row][column]. */
#include <stdint.h>
#include <string.h>

#ifdef NARROW
typedef uint16_t stored;
static inline float wide(stored x) { uint32_t bits = (uint32_t)x << 16; float value; memcpy(&value, &bits, 4); return value; }
#else
typedef float stored;
static inline float wide(stored x) { return x; }
#endif

#define BLOCK 64 /* tokens of which keys stay in the first cache while all rows read them */

typedef struct {
  int64_t address; /* of its first key of layer 0, head 0 */
  int64_t capacity;
  int64_t first, last; /* rows that read it */
  int64_t column, count;
} piece;

static const stored *side(const piece *p, int64_t layer, int64_t heads, int64_t head, int64_t values) {
  return (const stored *)(intptr_t)p->address + (((layer * 2 + values) * heads + head) * p->capacity) * SIZE;
}

void scores(const float *queries, float *out, const piece *pieces, int64_t number, int64_t layer, int64_t from, int64_t until,
            int64_t heads, int64_t rows, int64_t columns) {
  for (const piece *p = pieces; p < pieces + number; p++)
    for (int64_t head = from; head < until; head++) {
      const stored *keys = side(p, layer, heads, head, 0);
      for (int64_t begin = 0; begin < p->count; begin += BLOCK) {
        int64_t end = begin + BLOCK < p->count ? begin + BLOCK : p->count;
        for (int64_t row = p->first; row < p->last; row++) {
          const float *query = queries + (head * rows + row) * SIZE;
          float *restrict scored = out + (head * rows + row) * columns + p->column;
          for (int64_t t = begin; t < end; t++) {
            float sum = 0;
            for (int d = 0; d < SIZE; d++) sum += query[d] * wide(keys[t * SIZE + d]);
            scored[t] = sum;
          }
        }
      }
    }
}

void values(const float *weights, float *out, const piece *pieces, int64_t number, int64_t layer, int64_t from, int64_t until,
            int64_t heads, int64_t rows, int64_t columns) {
  for (const piece *p = pieces; p < pieces + number; p++)
    for (int64_t head = from; head < until; head++) {
      const stored *all = side(p, layer, heads, head, 1);
      for (int64_t begin = 0; begin < p->count; begin += BLOCK) {
        int64_t end = begin + BLOCK < p->count ? begin + BLOCK : p->count;
        for (int64_t row = p->first; row < p->last; row++) {
          const float *weight = weights + (head * rows + row) * columns + p->column;
          float *result = out + (head * rows + row) * SIZE, sum[SIZE];
          memcpy(sum, result, sizeof sum);
          const stored *value = all + begin * SIZE;
          int64_t t = begin;
          for (; t + 4 <= end; t += 4, value += 4 * SIZE) /* four at a time: the additions to sum wait for each other */
            for (int d = 0; d < SIZE; d++)
              sum[d] += (weight[t] * wide(value[d]) + weight[t + 1] * wide(value[SIZE + d]))
                      + (weight[t + 2] * wide(value[2 * SIZE + d]) + weight[t + 3] * wide(value[3 * SIZE + d]));
          for (; t < end; t++, value += SIZE)
            for (int d = 0; d < SIZE; d++) sum[d] += weight[t] * wide(value[d]);
          memcpy(result, sum, sizeof sum);
        }
      }
    }
}

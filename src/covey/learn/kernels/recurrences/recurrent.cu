// The recurrence of a GRU over all tokens: `unrolled`, `last` and the loop of `derivative` of models/by_token.py. Many models, each
// with weights of its own, in plain float32. What is kept lies as there: [model, token, row, unit].
//
// Compiled for H units, a multiple of 32 up to 128, ROWS texts of a block, a multiple of 3, and KEEP: whether what the derivative
// needs is written. A block holds ROWS texts of one model and all of its 3 H × H weights, H in the registers of each of 3 H threads:
// four columns, a quarter of the sum. So each number read from shared memory serves four products, and four neighbours add up. No
// sum depends on how many models or texts there are.

#define COLUMNS (3 * H)
#define MINE (ROWS / 3) // texts of which a thread has one unit, for what is computed number by number
#define PIECES (H / 16)

__device__ __forceinline__ float other(float value, int lane) { return __shfl_xor_sync(0xffffffffu, value, lane); }

// Four sums of each of four neighbours: the first gets all of the first, and so on.
__device__ __forceinline__ float added(float a, float b, float c, float d) {
  const bool upper = threadIdx.x & 2, odd = threadIdx.x & 1;
  const float first = (upper ? c : a) + other(upper ? a : c, 2);
  const float second = (upper ? d : b) + other(upper ? b : d, 2);
  return (odd ? second : first) + other(odd ? first : second, 1);
}

// Of one text: a column of the product, with what this thread and its neighbours have of the weights.
__device__ __forceinline__ float product(const float4 *from, const float4 (&weights)[PIECES][4]) {
  float a = 0.0f, b = 0.0f, c = 0.0f, d = 0.0f;
#pragma unroll
  for (int m = 0; m < PIECES; m++) {
    const float4 four = from[4 * m];
    const float each[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
    for (int k = 0; k < 4; k++) {
      a += each[k] * weights[m][k].x;
      b += each[k] * weights[m][k].y;
      c += each[k] * weights[m][k].z;
      d += each[k] * weights[m][k].w;
    }
  }
  return added(a, b, c, d);
}

#if defined(ONLY_forwards)
__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); } // of +inf exactly 1

extern "C" __global__ void __launch_bounds__(THREADS, 1)
forwards(const float *x, const float *w, const float *b, float *last, float *gates, float *candidates, float *given,
         float *states, int rows, int tokens, int parts, int w_model, int b_model) { // how far models lie apart
  __shared__ __align__(16) float state[ROWS * H];
  __shared__ float sums[ROWS * COLUMNS];
  const long long model = blockIdx.x / parts;
  const int begin = blockIdx.x % parts * ROWS, here = min(ROWS, rows - begin);
  const int quarter = threadIdx.x % 4, column = threadIdx.x - quarter;
  float4 weights[PIECES][4];
#pragma unroll
  for (int m = 0; m < PIECES; m++) {
    const float *from = w + model * w_model + column * H + 16 * m + 4 * quarter;
    const float4 one = *(const float4 *)from, two = *(const float4 *)(from + H);
    const float4 three = *(const float4 *)(from + 2 * H), four = *(const float4 *)(from + 3 * H);
    weights[m][0] = {one.x, two.x, three.x, four.x};
    weights[m][1] = {one.y, two.y, three.y, four.y};
    weights[m][2] = {one.z, two.z, three.z, four.z};
    weights[m][3] = {one.w, two.w, three.w, four.w};
  }
  const int unit = threadIdx.x % H, own = threadIdx.x / H; // its texts: own, own + 3, …
  float shift[3], before[MINE];
#pragma unroll
  for (int g = 0; g < 3; g++) shift[g] = b[model * b_model + g * H + unit];
#pragma unroll
  for (int j = 0; j < MINE; j++) {
    before[j] = 0.0f;
    state[(own + 3 * j) * H + unit] = 0.0f;
  }
  __syncthreads();
  for (int token = 0; token < tokens; token++) {
    float taken[MINE][3]; // long before it is used
#pragma unroll
    for (int j = 0; j < MINE; j++) {
      const int row = own + 3 * j;
      const float *from = x + ((model * rows + begin + row) * tokens + token) * COLUMNS + unit;
#pragma unroll
      for (int g = 0; g < 3; g++) taken[j][g] = row < here ? from[g * H] : 0.0f;
    }
#pragma unroll 1
    for (int row = 0; row < here; row++)
      sums[row * COLUMNS + threadIdx.x] = product((const float4 *)(state + row * H) + quarter, weights);
    __syncthreads();
#pragma unroll
    for (int j = 0; j < MINE; j++) {
      const int row = own + 3 * j;
      if (row >= here) continue;
      const float *sum = sums + row * COLUMNS + unit;
      const float reset = sigmoid(taken[j][0] + (sum[0] + shift[0]));
      const float update = sigmoid(taken[j][1] + (sum[H] + shift[1]));
      const float gave = sum[2 * H] + shift[2];
      const float candidate = tanhf(taken[j][2] + reset * gave);
      if (KEEP) {
        const long long at = (model * tokens + token) * rows + begin + row;
        gates[at * (2 * H) + unit] = reset;
        gates[at * (2 * H) + H + unit] = update;
        candidates[at * H + unit] = candidate;
        given[at * H + unit] = gave;
        states[at * H + unit] = before[j];
      }
      // As torch.lerp: an update gate of 1 gives the state before to the bit.
      const float way = before[j] - candidate;
      before[j] = update < 0.5f ? candidate + update * way : before[j] - way * (1.0f - update);
      state[row * H + unit] = before[j];
    }
    __syncthreads();
  }
#pragma unroll
  for (int j = 0; j < MINE; j++) {
    const int row = own + 3 * j;
    if (row < here) last[(model * rows + begin + row) * H + unit] = before[j];
  }
}
#endif

#if defined(ONLY_backwards)
extern "C" __global__ void __launch_bounds__(THREADS, 1)
backwards(const float *grad, const float *w, const float *gates, const float *candidates, const float *given,
          const float *states, float *at_given, float *at_x, int rows, int tokens, int parts, int w_model) {
  __shared__ __align__(16) float slopes[ROWS * COLUMNS];
  __shared__ float sums[ROWS * COLUMNS]; // of each gate's part
  const long long model = blockIdx.x / parts;
  const int begin = blockIdx.x % parts * ROWS, here = min(ROWS, rows - begin);
  const int unit = threadIdx.x % H, own = threadIdx.x / H, quarter = threadIdx.x % 4;
  float4 weights[PIECES][4]; // of gate `own`
#pragma unroll
  for (int m = 0; m < PIECES; m++) {
    const float *from = w + model * w_model + (own * H + 16 * m + 4 * quarter) * H + unit - quarter;
#pragma unroll
    for (int k = 0; k < 4; k++) weights[m][k] = *(const float4 *)(from + k * H);
  }
  float back[MINE], taken[MINE][5];
  const auto take = [&](int token) {
#pragma unroll
    for (int j = 0; j < MINE; j++) {
      const int row = own + 3 * j;
      if (row >= here) continue;
      const long long at = (model * tokens + token) * rows + begin + row;
      taken[j][0] = gates[at * (2 * H) + unit];
      taken[j][1] = gates[at * (2 * H) + H + unit];
      taken[j][2] = candidates[at * H + unit];
      taken[j][3] = given[at * H + unit];
      taken[j][4] = states[at * H + unit];
    }
  };
#pragma unroll
  for (int j = 0; j < MINE; j++) {
    const int row = own + 3 * j;
    back[j] = row < here ? grad[(model * rows + begin + row) * H + unit] : 0.0f;
  }
  take(tokens - 1);
  for (int token = tokens - 1; token >= 0; token--) {
#pragma unroll
    for (int j = 0; j < MINE; j++) {
      const int row = own + 3 * j;
      if (row >= here) continue;
      const float reset = taken[j][0], update = taken[j][1], candidate = taken[j][2];
      const float through = back[j] * ((1.0f - update) * (1.0f - candidate * candidate)); // to what tanh reads
      const float at_reset = through * taken[j][3] * reset * (1.0f - reset);
      const float at_update = back[j] * ((taken[j][4] - candidate) * update * (1.0f - update));
      float *slope = slopes + row * COLUMNS + unit;
      slope[0] = at_reset;
      slope[H] = at_update;
      slope[2 * H] = through * reset;
      float *to = at_given + ((model * tokens + token) * rows + begin + row) * COLUMNS + unit;
      to[0] = at_reset;
      to[H] = at_update;
      to[2 * H] = through * reset;
      to = at_x + ((model * rows + begin + row) * tokens + token) * COLUMNS + unit;
      to[0] = at_reset;
      to[H] = at_update;
      to[2 * H] = through; // x meets the candidate behind the reset gate
      back[j] *= update;
    }
    if (token == 0) break;
    take(token - 1); // long before it is used
    __syncthreads();
#pragma unroll 1
    for (int row = 0; row < here; row++)
      sums[row * COLUMNS + threadIdx.x] = product((const float4 *)(slopes + row * COLUMNS + own * H) + quarter, weights);
    __syncthreads();
#pragma unroll
    for (int j = 0; j < MINE; j++) {
      const float *sum = sums + (own + 3 * j) * COLUMNS + unit;
      if (own + 3 * j < here) back[j] += sum[0] + sum[H] + sum[2 * H];
    }
  }
}
#endif

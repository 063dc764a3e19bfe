// Convolution, the largest of each 2 by 2 of its outputs, ReLU: forwards, and the gradients at weights and inputs. For many clients,
// each with weights of its own, and layers of few channels, where a product of matrices would be mostly padding: plain float32
// sums in registers. Of a window of four outputs one alone has a gradient, and `code` says which (4: none, ReLU gave 0).
//
// Compiled for one layer: C, H, W channels and sides of its images, O outputs, KH, KW, PH, PW of its kernel and padding; PAIRS, KEEP,
// THREADS, GROUPS, ROOM and IMAGES as `pooled.py` chooses them. A client has `parts` blocks, which follow each other. No sum depends on how many clients or images there are.

#define OH (H + 2 * PH - KH + 1)
#define OW (W + 2 * PW - KW + 1)
#define RH (OH / 2) // sides of what comes out
#define RW (OW / 2)
#define PLACES (RH * RW)
#define K (C * KH * KW)
#define OP ((O + 3) / 4 * 4)
#define CP ((C + 3) / 4 * 4)
// A row of an image with its padding, and a channel: neighbours among the taps of an output lie in different banks.
#define WIDE ((W + 2 * PW + 30) / 32 * 32 + 1)
#define CHANNEL ((H + 2 * PH) * WIDE + (KH - (H + 2 * PH) * WIDE % 32 + 32) % 32)
#define NONE 4
#define DOWN (KH / 2 + 1) // windows that one input is in, along each side
#define RIGHT (KW / 2 + 1)

struct __align__(8) Entry {
  float delta;
  int at; // of its output: its place in a padded image, or row and column
};

#if defined(ONLY_outputs)
// A row of an image, from this column on: 0 beyond its sides. Columns are even, and pairs of floats aligned, where PAIRS says so.
__device__ __forceinline__ void load(float (&taken)[KW + 1], const float *in, int row, int column) {
  const bool there = PH == 0 || (row >= 0 && row < H);
#if PAIRS
#pragma unroll
  for (int j = 0; j <= KW; j += 2) {
    float2 pair = {0.0f, 0.0f};
    if (there && (PW == 0 || (column + j >= 0 && column + j < W))) pair = *(const float2 *)(in + row * W + column + j);
    taken[j] = pair.x;
    taken[j + 1] = pair.y;
  }
#else
#pragma unroll
  for (int j = 0; j <= KW; j++)
    taken[j] = there && (PW == 0 || (column + j >= 0 && column + j < W)) ? in[row * W + column + j] : 0.0f;
#endif
}

extern "C" __global__ void __launch_bounds__(THREADS)
outputs(const float *x, const float *w, const float *b, float *y, unsigned char *code, int parts, int images,
        int x_client, int w_client, int b_client) { // how far clients lie apart
  __shared__ __align__(16) float weights[K * OP];
  const long long client = blockIdx.x / parts;
  const float *own = w + client * w_client;
  for (int at = threadIdx.x; at < K * OP; at += THREADS) {
    const int k = at / OP, o = at % OP;
    weights[at] = o < O ? own[o * K + k] : 0.0f;
  }
  __syncthreads();
  const long long q = (long long)(blockIdx.x % parts) * THREADS + threadIdx.x;
  if (q >= (long long)images * PLACES) return;
  const int image = (int)(q / PLACES);
  const int place = (int)(q % PLACES), row = 2 * (place / RW) - PH, column = 2 * (place % RW) - PW;
  const float *in = x + client * x_client + (long long)image * (C * H * W);
  float sums[4][OP];
#pragma unroll
  for (int o = 0; o < O; o++) {
    const float first = b[client * b_client + o];
#pragma unroll
    for (int s = 0; s < 4; s++) sums[s][o] = first;
  }
#pragma unroll 1
  for (int c = 0; c < C; c++) {
    float upper[KW + 1], lower[KW + 1];
    load(upper, in, row, column);
#pragma unroll
    for (int i = 0; i < KH; i++) {
      load(lower, in, row + i + 1, column);
#pragma unroll
      for (int j = 0; j < KW; j++) {
        const float4 *tap = (const float4 *)(weights + ((c * KH + i) * KW + j) * OP);
#pragma unroll
        for (int o = 0; o < OP; o += 4) {
          const float4 four = tap[o / 4];
          const float each[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
          for (int n = 0; n < 4; n++) {
            if (o + n < O) {
              sums[0][o + n] += upper[j] * each[n];
              sums[1][o + n] += upper[j + 1] * each[n];
              sums[2][o + n] += lower[j] * each[n];
              sums[3][o + n] += lower[j + 1] * each[n];
            }
          }
        }
      }
#pragma unroll
      for (int j = 0; j <= KW; j++) upper[j] = lower[j];
    }
    in += H * W;
  }
  const long long begin = (client * images + image) * (O * PLACES) + place;
#pragma unroll
  for (int o = 0; o < O; o++) {
    float best = sums[0][o];
    int which = 0;
#pragma unroll
    for (int s = 1; s < 4; s++) {
      if (sums[s][o] > best || sums[s][o] != sums[s][o]) { // as torch chooses: the first of equals, NaN where there is one
        best = sums[s][o];
        which = s;
      }
    }
    const bool none = best <= 0.0f;
    y[begin + (long long)o * PLACES] = none ? 0.0f : best;
    if (KEEP) code[begin + (long long)o * PLACES] = none ? NONE : which;
  }
}
#endif

#if defined(ONLY_at_weights)
extern "C" __global__ void __launch_bounds__(THREADS)
at_weights(const float *delta, const unsigned char *code, const float *x, float *dw, float *db, int parts,
           int images, int x_client) {
  // A block adds up IMAGES images of a client. A thread has one row of taps of one output and channel; GROUPS share out the places.
  __shared__ float image[C * CHANNEL];
  __shared__ __align__(8) float room[ROOM]; // for the entries of an image, and at the end for the groups' sums
  Entry *entries = (Entry *)room;
  const long long client = blockIdx.x / parts;
  const int part = blockIdx.x % parts;
  const int rows = O * C * KH, mine = threadIdx.x % rows, group = threadIdx.x / rows;
  const int o = mine / (C * KH), c = mine / KH % C, i = mine % KH;
  const bool works = threadIdx.x < rows * GROUPS;
  float sums[KW], of_bias = 0.0f;
#pragma unroll
  for (int j = 0; j < KW; j++) sums[j] = 0.0f;
  for (int at = threadIdx.x; at < C * CHANNEL; at += THREADS) image[at] = 0.0f; // padding stays
  const int last = min(images, (part + 1) * IMAGES);
  for (int n = part * IMAGES; n < last; n++) {
    __syncthreads();
    const float *in = x + client * x_client + (long long)n * (C * H * W);
    for (int at = threadIdx.x; at < C * H * W; at += THREADS) {
      const int channel = at / (H * W), row = at / W % H, column = at % W;
      image[channel * CHANNEL + (row + PH) * WIDE + column + PW] = in[at];
    }
    const long long begin = (client * images + n) * (O * PLACES);
    for (int at = threadIdx.x; at < O * PLACES; at += THREADS) {
      const int which = code[begin + at], place = at % PLACES;
      Entry one;
      one.delta = which == NONE ? 0.0f : delta[begin + at];
      one.at = (2 * (place / RW) + (which >> 1 & 1)) * WIDE + 2 * (place % RW) + (which & 1);
      entries[at] = one;
    }
    __syncthreads();
    if (works) {
      const float *taps = image + c * CHANNEL + i * WIDE;
      for (int place = group; place < PLACES; place += GROUPS) {
        const Entry one = entries[o * PLACES + place];
#pragma unroll
        for (int j = 0; j < KW; j++) sums[j] += one.delta * taps[one.at + j];
        of_bias += one.delta;
      }
    }
  }
  __syncthreads();
  if (works) {
#pragma unroll
    for (int j = 0; j < KW; j++) room[(group * rows + mine) * (KW + 1) + j] = sums[j];
    room[(group * rows + mine) * (KW + 1) + KW] = of_bias;
  }
  __syncthreads();
  if (threadIdx.x >= rows) return;
  const long long to = blockIdx.x;
#pragma unroll
  for (int j = 0; j <= KW; j++) {
    float total = 0.0f;
    for (int g = 0; g < GROUPS; g++) total += room[(g * rows + mine) * (KW + 1) + j];
    if (j < KW)
      dw[to * (O * K) + mine * KW + j] = total;
    else if (c == 0 && i == 0)
      db[to * O + o] = total;
  }
}
#endif

#if defined(ONLY_at_inputs)
extern "C" __global__ void __launch_bounds__(THREADS)
at_inputs(const float *delta, const unsigned char *code, const float *w, float *dx, int parts, int images,
          int w_client) {
  // A thread has one place of the inputs, with all its channels.
  __shared__ __align__(16) float weights[O * KH * KW * CP]; // [O, C / 4, taps, 4]
  __shared__ Entry entries[O * PLACES];
  const long long client = blockIdx.x / parts;
  const int part = blockIdx.x % parts;
  const float *own = w + client * w_client;
  for (int at = threadIdx.x; at < O * KH * KW * CP; at += THREADS) {
    const int tap = at / 4 % (KH * KW), c = at / (4 * KH * KW) % (CP / 4) * 4 + at % 4, o = at / (KH * KW * CP);
    weights[at] = c < C ? own[(o * C + c) * (KH * KW) + tap] : 0.0f;
  }
  const int last = min(images, (part + 1) * IMAGES);
  for (int n = part * IMAGES; n < last; n++) {
    __syncthreads();
    const long long begin = (client * images + n) * (O * PLACES);
    for (int at = threadIdx.x; at < O * PLACES; at += THREADS) {
      const int which = code[begin + at], place = at % PLACES;
      Entry one;
      one.delta = which == NONE ? 0.0f : delta[begin + at];
      one.at = (2 * (place / RW) + (which >> 1 & 1)) << 16 | (2 * (place % RW) + (which & 1));
      entries[at] = one;
    }
    __syncthreads();
    for (int place = threadIdx.x; place < H * W; place += THREADS) {
      const int row = place / W + PH, column = place % W + PW; // of a padded image: outputs read from there on, down and right
      const int top = row / 2, left = column / 2;              // the last windows that read it
      float sums[CP];
#pragma unroll
      for (int c = 0; c < CP; c++) sums[c] = 0.0f;
#pragma unroll 1
      for (int o = 0; o < O; o++) {
#pragma unroll
        for (int down = 0; down < DOWN; down++) {
#pragma unroll
          for (int right = 0; right < RIGHT; right++) {
            const int r = top - down, s = left - right;
            if (r < 0 || s < 0 || r >= RH || s >= RW) continue;
            const Entry one = entries[o * PLACES + r * RW + s];
            const int i = row - (one.at >> 16), j = column - (one.at & 0xffff);
            if (i < 0 || j < 0 || i >= KH || j >= KW) continue;
            const float4 *tap = (const float4 *)weights + o * (CP / 4) * (KH * KW) + i * KW + j;
#pragma unroll
            for (int c = 0; c < CP; c += 4) {
              const float4 four = tap[c / 4 * (KH * KW)];
              sums[c] += one.delta * four.x;
              sums[c + 1] += one.delta * four.y;
              sums[c + 2] += one.delta * four.z;
              sums[c + 3] += one.delta * four.w;
            }
          }
        }
      }
      float *out = dx + (client * images + n) * (C * H * W) + place;
#pragma unroll
      for (int c = 0; c < C; c++) out[c * (H * W)] = sums[c];
    }
  }
}
#endif

// `randomness.key`, of many numbers: the first 63 bits of BLAKE2b, with 8 bytes of it asked for, of a text with a number in it.
// The text is one block of 128 bytes at most (RFC 7693), and a thread hashes one of them.

typedef unsigned long long u64;

static __device__ const u64 IV[8] = {
    0x6a09e667f3bcc908ULL, 0xbb67ae8584caa73bULL, 0x3c6ef372fe94f82bULL, 0xa54ff53a5f1d36f1ULL,
    0x510e527fade682d1ULL, 0x9b05688c2b3e6c1fULL, 0x1f83d9abfb41bd6bULL, 0x5be0cd19137e2179ULL};
static __device__ const unsigned char ORDER[10][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4}, {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13}, {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11}, {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5}, {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0}};

static __device__ __forceinline__ u64 turned(u64 x, int by) { return x >> by | x << (64 - by); }

static __device__ __forceinline__ void mix(u64 *v, int a, int b, int c, int d, u64 x, u64 y) {
  v[a] += v[b] + x;
  v[d] = turned(v[d] ^ v[a], 32);
  v[c] += v[d];
  v[b] = turned(v[b] ^ v[c], 24);
  v[a] += v[b] + y;
  v[d] = turned(v[d] ^ v[a], 16);
  v[c] += v[d];
  v[b] = turned(v[b] ^ v[c], 63);
}

// `text`: what stands before a number, and what stands behind it. Numbers have no sign, and 19 digits at most.
extern "C" __global__ void __launch_bounds__(THREADS)
keys(const unsigned char *text, const long long *numbers, long long *out, int before, int behind, int n) {
  const int at = blockIdx.x * THREADS + threadIdx.x;
  if (at >= n) return;
  unsigned char digits[20];
  int count = 0;
  u64 left = (u64)numbers[at];
  do {
    digits[count++] = (unsigned char)('0' + left % 10);
    left /= 10;
  } while (left);

  u64 words[16] = {};
  const int length = before + count + behind;
  for (int i = 0; i < length; i++) {
    const int digit = count - 1 - (i - before);
    const unsigned char byte = i < before ? text[i] : digit >= 0 ? digits[digit] : text[i - count];
    words[i / 8] |= (u64)byte << i % 8 * 8;
  }

  u64 v[16];
  const u64 first = IV[0] ^ 0x01010008ULL; // no key, 8 bytes asked for
  for (int i = 0; i < 8; i++) {
    v[i] = i ? IV[i] : first;
    v[i + 8] = IV[i];
  }
  v[12] ^= (u64)length;
  v[14] = ~v[14]; // the last block
  for (int round = 0; round < 12; round++) {
    const unsigned char *order = ORDER[round % 10];
    for (int i = 0; i < 4; i++)
      mix(v, i, i + 4, i + 8, i + 12, words[order[2 * i]], words[order[2 * i + 1]]);
    for (int i = 0; i < 4; i++)
      mix(v, i, (i + 1) % 4 + 4, (i + 2) % 4 + 8, (i + 3) % 4 + 12, words[order[2 * i + 8]], words[order[2 * i + 9]]);
  }

  const u64 hash = first ^ v[0] ^ v[8];
  u64 key = 0; // its bytes the other way round
  for (int i = 0; i < 8; i++) key = key << 8 | (hash >> i * 8 & 255);
  out[at] = (long long)(key >> 1);
}

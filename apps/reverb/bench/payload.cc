#include "bench/payload.h"

#include <cstring>

namespace reverb::bench {

const uint8_t* Pool() {
  static const std::vector<float>* const pool = [] {
    auto* values = new std::vector<float>(kPoolBytes / sizeof(float));
    Random random(1);
    for (float& value : *values) value = static_cast<float>(random() >> 40) * 0x1p-24F;
    return values;
  }();
  return reinterpret_cast<const uint8_t*>(pool->data());
}

std::vector<uint8_t> MakeFrames(int64_t count, uint64_t seed) {
  struct Sprite {
    int64_t x, y, dx, dy, size;
    uint8_t color;
  };
  Random random(seed);
  std::vector<uint8_t> background(kFrameBytes);
  for (int64_t i = 0; i < kFrameBytes; ++i) background[i] = static_cast<uint8_t>(i / (12 * kFrameSide) * 20);
  std::vector<Sprite> sprites(8);
  for (Sprite& sprite : sprites) {
    const auto below = [&random](uint64_t n) { return static_cast<int64_t>(random() % n); };
    sprite = {below(70), below(70), below(5) - 2, below(5) - 2, below(8) + 3, static_cast<uint8_t>(random())};
  }
  std::vector<uint8_t> frames(static_cast<size_t>(count * kFrameBytes));
  for (int64_t frame = 0; frame < count; ++frame) {
    uint8_t* const pixels = frames.data() + frame * kFrameBytes;
    std::memcpy(pixels, background.data(), kFrameBytes);
    for (Sprite& sprite : sprites) {
      for (int64_t row = 0; row < sprite.size; ++row) {
        std::memset(pixels + (sprite.y + row) * kFrameSide + sprite.x, sprite.color, sprite.size);
      }
      const int64_t room = kFrameSide - sprite.size;
      sprite.x = (sprite.x + sprite.dx + room) % room;
      sprite.y = (sprite.y + sprite.dy + room) % room;
    }
  }
  return frames;
}

}  // namespace reverb::bench

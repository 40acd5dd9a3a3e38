// Vectors of the reference packages xxhash, mmh3 and pyfarmhash; the same as those of
// runtime/tests/hash_vectors.json, which a Python test compares with this file.
#pragma once

#include <cstdint>
#include <string_view>

#include "anabranch/features/hashing.h"

namespace anabranch::features {

struct HashVector {
  HashFunction function;
  std::uint64_t seed;
  std::string_view text;
  std::uint64_t hash;
};

inline constexpr HashVector kHashVectors[] = {
    {HashFunction::kXxh64, 0U, "", 0xef46db3751d8e999},
    {HashFunction::kXxh64, 0U, "a", 0xd24ec4f1a98c6e5b},
    {HashFunction::kXxh64, 0U, "abc", 0x44bc2cf5ad770999},
    {HashFunction::kXxh64, 0U, "red", 0xd1d784bb12e4656a},
    {HashFunction::kXxh64, 0U, "sale", 0x52169b914dc81338},
    {HashFunction::kXxh64, 0U, "9001", 0x370ba8fbfbb63c8a},
    {HashFunction::kXxh64, 0U, "-1", 0x3d62c7c8a7a6e2d8},
    {HashFunction::kXxh64, 0U, "0", 0x633457081244afec},
    {HashFunction::kXxh64, 0U, "9223372036854775807", 0xd8afff7b1fb07eb3},
    {HashFunction::kXxh64, 0U, "-9223372036854775808", 0x9e606ab2dd272c10},
    {HashFunction::kXxh64, 0U, "b8c34b1e5a7d0f26", 0x9b293ffdf282a713},
    {HashFunction::kXxh64, 0U, "Größe", 0xd6d93475b38df2fb},
    {HashFunction::kXxh64, 0U, "日本語", 0x7179a19f3719f5e1},
    {HashFunction::kXxh64, 0U, "🙂", 0x08204c75e29551d3},
    {HashFunction::kXxh64, 0U, "seventeen bytes..", 0x0a670edb8d7f2d60},
    {HashFunction::kXxh64, 0U, "a text of exactly thirty-two byt", 0x6e6f17bdc267ad8a},
    {HashFunction::kXxh64, 0U, "0123456789abcdef0123456789abcdef0123456789abcdef",
     0xe35216444a3c253b},
    {HashFunction::kXxh64, 0U, "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef!",
     0x2020b26dbc09cee8},
    {HashFunction::kXxh64, 0U,
     "anabranch anabranch anabranch anabranch anabranch anabranch anabranch anabranch anabranch "
     "anabranch anabranch anabranch anabranch anabranch anabranch anabranch anabranch anabranch "
     "anabranch anabranch anabranch anabranch anabranch anabranch anabranch anabranch anabranch "
     "anabranch anabranch anabranch ",
     0x6ca5fda29e760045},
    {HashFunction::kXxh64, 1U, "", 0xd5afba1336a3be4b},
    {HashFunction::kXxh64, 1U, "red", 0xb919757bf255ab4c},
    {HashFunction::kXxh64, 1U, "日本語", 0xb7189fd84b5f5f07},
    {HashFunction::kXxh64, 1U,
     "anabranch anabranch anabranch anabranch anabranch anabranch anabranch anabranch anabranch "
     "anabranch anabranch anabranch anabranch anabranch anabranch anabranch anabranch anabranch "
     "anabranch anabranch anabranch anabranch anabranch anabranch anabranch anabranch anabranch "
     "anabranch anabranch anabranch ",
     0x99b6cd108fdede22},
    {HashFunction::kXxh64, 4294967295U, "", 0x39554c1e3db747e7},
    {HashFunction::kXxh64, 4294967295U, "red", 0xd165df0f86041c6a},
    {HashFunction::kXxh64, 4294967295U, "日本語", 0x2e16eeaa494f1793},
    {HashFunction::kXxh64, 4294967295U,
     "anabranch anabranch anabranch anabranch anabranch anabranch anabranch anabranch anabranch "
     "anabranch anabranch anabranch anabranch anabranch anabranch anabranch anabranch anabranch "
     "anabranch anabranch anabranch anabranch anabranch anabranch anabranch anabranch anabranch "
     "anabranch anabranch anabranch ",
     0x38ce9af70fc15f42},
    {HashFunction::kMurmur3X64128Low, 0U, "", 0x0000000000000000},
    {HashFunction::kMurmur3X64128Low, 0U, "a", 0x85555565f6597889},
    {HashFunction::kMurmur3X64128Low, 0U, "abc", 0xb4963f3f3fad7867},
    {HashFunction::kMurmur3X64128Low, 0U, "red", 0xc610901cf44daa23},
    {HashFunction::kMurmur3X64128Low, 0U, "sale", 0x80fd1c3b2c3b2fbb},
    {HashFunction::kMurmur3X64128Low, 0U, "9001", 0x8dcac702800e98c9},
    {HashFunction::kMurmur3X64128Low, 0U, "-1", 0xedb551f5e4c5362a},
    {HashFunction::kMurmur3X64128Low, 0U, "0", 0x2ac9debed546a380},
    {HashFunction::kMurmur3X64128Low, 0U, "9223372036854775807", 0x636591a2ccd7073b},
    {HashFunction::kMurmur3X64128Low, 0U, "-9223372036854775808", 0x4df5c9b71982a38d},
    {HashFunction::kMurmur3X64128Low, 0U, "b8c34b1e5a7d0f26", 0xf6656400089cfb5a},
    {HashFunction::kMurmur3X64128Low, 0U, "Größe", 0x700c69b4239e1378},
    {HashFunction::kMurmur3X64128Low, 0U, "日本語", 0x12bb87b9a8fbeff4},
    {HashFunction::kMurmur3X64128Low, 0U, "🙂", 0x5d8c7b1f9eb67e6b},
    {HashFunction::kMurmur3X64128Low, 0U, "seventeen bytes..", 0x5b03893efda7768b},
    {HashFunction::kMurmur3X64128Low, 0U, "a text of exactly thirty-two byt", 0x6614bb611a29e8b6},
    {HashFunction::kMurmur3X64128Low, 0U, "0123456789abcdef0123456789abcdef0123456789abcdef",
     0x9ac8fb1c6ec3a370},
    {HashFunction::kMurmur3X64128Low, 0U,
     "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef!", 0xde0e3d4cc4685fec},
    {HashFunction::kMurmur3X64128Low, 0U,
     "anabranch anabranch anabranch anabranch anabranch anabranch anabranch anabranch anabranch "
     "anabranch anabranch anabranch anabranch anabranch anabranch anabranch anabranch anabranch "
     "anabranch anabranch anabranch anabranch anabranch anabranch anabranch anabranch anabranch "
     "anabranch anabranch anabranch ",
     0x3d2a80937c55ec44},
    {HashFunction::kMurmur3X64128Low, 1U, "", 0x4610abe56eff5cb5},
    {HashFunction::kMurmur3X64128Low, 1U, "red", 0xf0bd0c8bb097361f},
    {HashFunction::kMurmur3X64128Low, 1U, "日本語", 0x17b5486c0a47d60d},
    {HashFunction::kMurmur3X64128Low, 1U,
     "anabranch anabranch anabranch anabranch anabranch anabranch anabranch anabranch anabranch "
     "anabranch anabranch anabranch anabranch anabranch anabranch anabranch anabranch anabranch "
     "anabranch anabranch anabranch anabranch anabranch anabranch anabranch anabranch anabranch "
     "anabranch anabranch anabranch ",
     0x83885e8786fa58bc},
    {HashFunction::kMurmur3X64128Low, 4294967295U, "", 0x6af1df4d9d3bc9ec},
    {HashFunction::kMurmur3X64128Low, 4294967295U, "red", 0x4d634c2939a74272},
    {HashFunction::kMurmur3X64128Low, 4294967295U, "日本語", 0x8ff9f0b13fe54c05},
    {HashFunction::kMurmur3X64128Low, 4294967295U,
     "anabranch anabranch anabranch anabranch anabranch anabranch anabranch anabranch anabranch "
     "anabranch anabranch anabranch anabranch anabranch anabranch anabranch anabranch anabranch "
     "anabranch anabranch anabranch anabranch anabranch anabranch anabranch anabranch anabranch "
     "anabranch anabranch anabranch ",
     0xdee669c57dd02d8e},
    {HashFunction::kFarmhashFingerprint64, 0U, "", 0x9ae16a3b2f90404f},
    {HashFunction::kFarmhashFingerprint64, 0U, "a", 0xb3454265b6df75e3},
    {HashFunction::kFarmhashFingerprint64, 0U, "abc", 0x24a5b3a074e7f369},
    {HashFunction::kFarmhashFingerprint64, 0U, "red", 0x0dc1119c86e561f6},
    {HashFunction::kFarmhashFingerprint64, 0U, "sale", 0x4996f3f27d2a740f},
    {HashFunction::kFarmhashFingerprint64, 0U, "9001", 0x448484eec74a8fe6},
    {HashFunction::kFarmhashFingerprint64, 0U, "-1", 0x65c727c9a1b5784e},
    {HashFunction::kFarmhashFingerprint64, 0U, "0", 0xd2ed96073b81823f},
    {HashFunction::kFarmhashFingerprint64, 0U, "9223372036854775807", 0xb0ccfb1982e491af},
    {HashFunction::kFarmhashFingerprint64, 0U, "-9223372036854775808", 0x14b9bc6f6d2837e0},
    {HashFunction::kFarmhashFingerprint64, 0U, "b8c34b1e5a7d0f26", 0xfb9a68d18d71dd65},
    {HashFunction::kFarmhashFingerprint64, 0U, "Größe", 0xf681a9562db1a908},
    {HashFunction::kFarmhashFingerprint64, 0U, "日本語", 0xd99eeda07b1cb847},
    {HashFunction::kFarmhashFingerprint64, 0U, "🙂", 0xc3c4182fc65098f4},
    {HashFunction::kFarmhashFingerprint64, 0U, "seventeen bytes..", 0x3788e02012b155d2},
    {HashFunction::kFarmhashFingerprint64, 0U, "a text of exactly thirty-two byt",
     0x7dc13a664e081871},
    {HashFunction::kFarmhashFingerprint64, 0U, "0123456789abcdef0123456789abcdef0123456789abcdef",
     0xf9cc8c56b737927d},
    {HashFunction::kFarmhashFingerprint64, 0U,
     "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef!", 0x1f22eb8d543b6f97},
    {HashFunction::kFarmhashFingerprint64, 0U,
     "anabranch anabranch anabranch anabranch anabranch anabranch anabranch anabranch anabranch "
     "anabranch anabranch anabranch anabranch anabranch anabranch anabranch anabranch anabranch "
     "anabranch anabranch anabranch anabranch anabranch anabranch anabranch anabranch anabranch "
     "anabranch anabranch anabranch ",
     0x387637f6254944ad},
};

}  // namespace anabranch::features

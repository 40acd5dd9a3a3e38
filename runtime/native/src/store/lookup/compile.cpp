#include "store/lookup/compile.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "anabranch/store/rows.h"

namespace anabranch::store::lookup {
namespace {

// Longer rows are fetched by the processor's own prefetcher from there on.
constexpr std::uint32_t kMostLinesAhead = 16;

alignas(64) constexpr std::byte kZeros[sizeof(float) * RowFormat::kMaxDim] = {};

std::size_t element_bytes(OutputType type) { return type == OutputType::kF32 ? 4 : 2; }

// Columns that a lookup writes.
std::size_t width_of(const LookupSpec& spec, const TableView& table) {
  const std::size_t dim = table.format.dim;
  return spec.combiner == Combiner::kNone ? dim * spec.max_length : dim;
}

[[noreturn]] void refuse(const LookupSpec& spec, const std::string& what) {
  throw std::invalid_argument("feature '" + spec.feature + "': " + what);
}

void check_ids(const LookupSpec& spec, const TableView& table) {
  if (spec.max_length == 0 || spec.max_length > LookupPlan::kMaxLength) {
    refuse(spec, "max_length is " + std::to_string(spec.max_length) + "; it must be 1 to " +
                     std::to_string(LookupPlan::kMaxLength));
  }
  if (spec.bag != BagForm::kFixed && spec.bag_type != IdType::kInt32 &&
      spec.bag_type != IdType::kInt64) {
    refuse(spec, "lengths and offsets are int32 or int64");
  }
  if (spec.weighted && (spec.combiner == Combiner::kNone || spec.combiner == Combiner::kMax)) {
    refuse(spec, "weights go with sum, mean or sqrtn only");
  }
  if (spec.missing == MissingPolicy::kOriginal && !table.is_dense()) {
    refuse(spec, "the policy 'original' is for tables of dense ids");
  }
  if (spec.missing == MissingPolicy::kVector && spec.missing_row.size() != table.format.dim) {
    refuse(spec, "the row for missing keys has " + std::to_string(spec.missing_row.size()) +
                     " numbers, those of the table have " + std::to_string(table.format.dim));
  }
}

void check_columns(std::span<const LookupSpec> lookups, std::span<const BufferSpec> buffers,
                   std::span<const TableView> tables) {
  std::vector<const LookupSpec*> order;
  for (const LookupSpec& spec : lookups) {
    if (spec.buffer >= buffers.size()) refuse(spec, "there is no buffer of that number");
    const BufferSpec& buffer = buffers[spec.buffer];
    if (buffer.side == Side::kUser && spec.side == Side::kRow) {
      refuse(spec, "a lookup for each row cannot write a buffer of users");
    }
    const std::size_t width = width_of(spec, tables[spec.table]);
    if (spec.column > buffer.columns || width > buffer.columns - spec.column) {
      refuse(spec, "columns " + std::to_string(spec.column) + " to " +
                       std::to_string(spec.column + width) + " are not all in its buffer of " +
                       std::to_string(buffer.columns));
    }
    order.push_back(&spec);
  }
  const auto by_column = [](const LookupSpec* a, const LookupSpec* b) {
    return a->buffer != b->buffer ? a->buffer < b->buffer : a->column < b->column;
  };
  std::sort(order.begin(), order.end(), by_column);
  for (std::size_t i = 1; i < order.size(); ++i) {
    const LookupSpec& before = *order[i - 1];
    const std::size_t end = before.column + width_of(before, tables[before.table]);
    if (before.buffer == order[i]->buffer && order[i]->column < end) {
      refuse(*order[i], "its columns overlap those of feature '" + before.feature + "'");
    }
  }
}

const std::byte* missing_row(const LookupSpec& spec, RowFormat format, Program& program) {
  if (spec.missing == MissingPolicy::kZeros) return kZeros;
  if (spec.missing != MissingPolicy::kVector) return nullptr;
  auto row = std::make_unique<std::byte[]>(format.stride());
  encode_rows(format, spec.missing_row, std::span(row.get(), format.stride()));
  program.missing_rows.push_back(std::move(row));
  return program.missing_rows.back().get();
}

Pooling pooling_of(const LookupSpec& spec) {
  if (spec.combiner == Combiner::kMax) return Pooling::kMax;
  return spec.weighted ? Pooling::kWeightedSum : Pooling::kSum;
}

Divisor divisor_of(Combiner combiner) {
  if (combiner == Combiner::kMean) return Divisor::kMean;
  return combiner == Combiner::kSqrtn ? Divisor::kSqrtn : Divisor::kNone;
}

Feature feature_of(const LookupSpec& spec, const BufferSpec& buffer, const TableView& table,
                   Program& program) {
  const std::uint32_t stride = table.format.stride();
  const bool one = spec.bag == BagForm::kFixed && spec.max_length == 1;
  const bool sequence = spec.combiner == Combiner::kNone && !one;
  const bool direct = one && !spec.weighted;
  const std::size_t element = element_bytes(buffer.type);
  return Feature{
      .table = table,
      .arena_origin =
          reinterpret_cast<std::uintptr_t>(table.arena) - std::uintptr_t{table.base_rows} * stride,
      .row_stride = stride,
      .row_lines = std::min((table.format.bytes() + 63) / 64, kMostLinesAhead),
      .row_limit = table.rows_end(),
      .max_length = spec.max_length,
      .zeros = kZeros,
      .missing = missing_row(spec, table.format, program),
      .padding = direct || sequence ? kZeros : nullptr,
      .missing_key = spec.missing_key,
      .padding_key = spec.padding_key.value_or(0),
      .add = static_cast<std::uint64_t>(spec.add),
      .id_type = spec.id_type,
      .bag_type = spec.bag_type,
      .bag = spec.bag,
      .side = spec.side,
      .policy = spec.missing,
      .output = buffer.type,
      .pooling = pooling_of(spec),
      .divisor = divisor_of(spec.combiner),
      .has_padding = spec.padding_key.has_value(),
      .sequence = sequence,
      .direct = direct,
      .broadcast = spec.side == Side::kUser && buffer.side == Side::kRow,
      .row_bytes_out = static_cast<std::uint32_t>(table.format.dim * element),
      .buffer = spec.buffer,
      .offset = spec.column * element,
      .copy = nullptr,
      .pool = nullptr,
  };
}

// Gives features of users that write rows a place in the shared rows, neighbours side by side.
void place_shared(std::span<const LookupSpec> lookups, std::span<const TableView> tables,
                  Program& program) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < lookups.size(); ++i) {
    if (program.features[i].broadcast) order.push_back(i);
  }
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return lookups[a].buffer != lookups[b].buffer ? lookups[a].buffer < lookups[b].buffer
                                                  : lookups[a].column < lookups[b].column;
  });
  for (const std::size_t i : order) {
    Feature& feature = program.features[i];
    const std::size_t bytes =
        width_of(lookups[i], tables[lookups[i].table]) * element_bytes(feature.output);
    const Broadcast* const before =
        program.broadcasts.empty() ? nullptr : &program.broadcasts.back();
    if (before == nullptr || before->buffer != feature.buffer ||
        before->offset + before->bytes != feature.offset) {
      program.shared_stride = (program.shared_stride + 63) / 64 * 64;
      program.broadcasts.push_back({feature.buffer, feature.offset, program.shared_stride, 0});
    }
    program.broadcasts.back().bytes += bytes;
    feature.offset = program.shared_stride;
    program.shared_stride += bytes;
  }
  program.shared_stride = (program.shared_stride + 63) / 64 * 64;
}

}  // namespace

Program compile(std::span<const LookupSpec> lookups, std::span<const BufferSpec> buffers,
                std::span<const TableView> tables, const Kernel& kernel) {
  for (const LookupSpec& spec : lookups) {
    if (spec.table >= tables.size()) refuse(spec, "there is no table of that number");
    check_ids(spec, tables[spec.table]);
  }
  check_columns(lookups, buffers, tables);
  Program program;
  program.features.reserve(lookups.size());
  for (const LookupSpec& spec : lookups) {
    program.features.push_back(feature_of(spec, buffers[spec.buffer], tables[spec.table], program));
    kernel.choose(program.features.back());
  }
  place_shared(lookups, tables, program);
  return program;
}

}  // namespace anabranch::store::lookup

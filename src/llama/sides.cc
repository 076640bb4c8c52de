#include "llama/sides.h"

#include <algorithm>

#include "base/error.h"
#include "llama/kv_store.h"

namespace tyto {
namespace {

// What both sides can hold; a context that was asked for is judged by each.
uint32_t common_context(const Config& config, const SideDevices& devices, uint32_t wanted) {
  if (wanted > 0) return wanted;
  uint32_t context = config.context;
  for (const auto* order : {&devices.decode, &devices.prefill})
    if (const uint32_t most = fixed_shapes(order->front()->info()).most_positions; most > 0)
      context = std::min(context, most);
  return context;
}

}  // namespace

Sides::Sides(const Model& model, const SideDevices& devices, const ForwardOptions& options,
             Trace& trace, const Progress& progress)
    : config_(model.config), trace_(trace) {
  const auto add = [&](const std::vector<Device*>& order, const ForwardOptions& own) {
    halves_.push_back({.forward = std::make_unique<Forward>(model, order, own, trace, progress),
                       .handed_over_name = trace.name(
                           {.label = "KV handed over to " + order.front()->info().name})});
  };
  if (devices.decode == devices.prefill) {
    add(devices.decode, options);
    page_ = forward(Side::decode).kv().page;
    pages_ = forward(Side::decode).kv().pages;
    return;
  }
  if (config_.has_states())
    throw Error(ErrorCode::unsupported, "--prefill-device",
                "this model's recurrent layers keep a state, which is not handed over from one "
                "device to another",
                "leave it out");
  ForwardOptions own = options;
  own.context = common_context(config_, devices, options.context);
  own.kv_shares = 2;
  add(devices.decode, own);
  own.decodes = false;
  add(devices.prefill, own);
  // Where a cache is one piece it is a page, and so are as many of the other side's as hold it.
  for (const Half& half : halves_) {
    const KvShape& kv = half.forward->kv();
    if (kv.is_one_piece && (page_ == 0 || kv.page < page_)) page_ = kv.page;
  }
  const bool is_one_piece = page_ > 0;
  if (!is_one_piece) page_ = forward(Side::decode).kv().page;
  pages_ = UINT32_MAX;
  for (Half& half : halves_) {
    const KvShape& kv = half.forward->kv();
    if (is_one_piece && !kv.is_one_piece) half.pages_each = (own.context + kv.page - 1) / kv.page;
    pages_ = std::min(pages_, kv.pages / half.pages_each);
  }
  if (pages_ == 0)
    throw Error(ErrorCode::usage, fmt::format("--kv-memory {}", options.kv_memory),
                fmt::format("the caches of a sequence of {} positions do not fit on both devices",
                            own.context),
                "give more, or a smaller -c");
  for (Half& half : halves_) half.held.resize(pages_);
}

uint64_t Sides::page_bytes() const {
  uint64_t bytes = 0;
  for (const Half& half : halves_) bytes += half.forward->kv().page_bytes * half.pages_each;
  return bytes;
}

uint64_t Sides::position_bytes(KvKind kind) const {
  const KvShape& kv = forward(Side::decode).kv();
  return kv.bytes_of_page(kind) / kv.page;
}

KvPage Sides::own_page(const Half& half, KvPage page, uint32_t position) {
  return page * half.pages_each + position / half.forward->kv().page;
}

void Sides::run(Side side, std::span<const SequenceRows> rows, const Forward::OnLogits& on_logits) {
  Half& here = halves_[index(side)];
  if (!are_two()) return here.forward->run(rows, on_logits);
  rows_.assign(rows.begin(), rows.end());
  own_pages_.clear();
  for (const SequenceRows& item : rows) {
    bring(side, item);
    for (const KvPage page : item.pages)
      for (uint32_t i = 0; i < here.pages_each; ++i)
        own_pages_.push_back(page * here.pages_each + i);
  }
  std::span<const KvPage> left = own_pages_;
  for (SequenceRows& item : rows_) {
    item.pages = left.first(item.pages.size() * here.pages_each);
    left = left.subspan(item.pages.size());
  }
  here.forward->run(rows_, on_logits);
  for (const SequenceRows& item : rows)
    wrote(side, item.pages, {item.position, static_cast<uint32_t>(item.tokens.size())});
}

uint32_t Sides::lacking(Side side, const SequenceRows& rows) const {
  uint32_t positions = 0;
  for (uint32_t i = 0, begin = 0; begin < rows.position; ++i, begin += page_) {
    const uint32_t needed = std::min(page_, rows.position - begin);
    positions += needed - std::min(needed, halves_[index(side)].held[rows.pages[i]]);
  }
  return positions;
}

// What the rows attend to.
void Sides::bring(Side side, const SequenceRows& rows) {
  const uint32_t positions = lacking(side, rows);
  if (positions == 0) return;
  Half& here = halves_[index(side)];
  const uint64_t start = now_ns();
  {
    Span span(trace_, EventKind::host, here.handed_over_name, rows.position, positions);
    for (uint32_t i = 0, begin = 0; begin < rows.position; ++i, begin += page_) {
      const KvPage page = rows.pages[i];
      const uint32_t needed = std::min(page_, rows.position - begin), held = here.held[page];
      if (held < needed) hand_over(side, page, {held, needed - held});
    }
  }
  if (rows.handed_over == nullptr) return;
  const KvShape& kv = here.forward->kv();
  *rows.handed_over += {.times = 1,
                        .positions = positions,
                        .bytes = positions * (kv.page_bytes / kv.page),
                        .ns = now_ns() - start};
}

template <typename Visit>
void Sides::for_each_stretch(KvRange range, const Visit& visit) const {
  const uint32_t end = range.first + range.count;
  for (uint32_t at = range.first; at < end;) {
    uint32_t until = end;
    for (const Half& half : halves_) {
      const uint32_t page = half.forward->kv().page;
      until = std::min(until, at - at % page + page);
    }
    visit(KvRange{at, until - at});
    at = until;
  }
}

// The other side has it: every position was written by one of them, which had all before it.
void Sides::hand_over(Side side, KvPage page, KvRange range) {
  Half &to = halves_[index(side)], &from = other(side);
  TYTO_ASSERT(from.held[page] >= range.first + range.count);
  const KvShape &from_kv = from.forward->kv(), &to_kv = to.forward->kv();
  for_each_stretch(range, [&](KvRange stretch) {
    in_.resize(stretch.count * (from_kv.page_bytes / from_kv.page));
    out_.resize(stretch.count * (to_kv.page_bytes / to_kv.page));
    from.forward->store().read(own_page(from, page, stretch.first),
                               {stretch.first % from_kv.page, stretch.count}, in_);
    convert_kv(from_kv, to_kv, config_, stretch.count, in_, out_);
    to.forward->store().write(own_page(to, page, stretch.first),
                              {stretch.first % to_kv.page, stretch.count}, out_);
  });
  to.held[page] = range.first + range.count;
}

// The other side's are old from there on.
void Sides::wrote(Side side, std::span<const KvPage> pages, KvRange positions) {
  if (!are_two()) return;
  const uint32_t end = positions.first + positions.count;
  for (uint32_t i = positions.first / page_; i * page_ < end; ++i) {
    const uint32_t begin = i * page_;
    halves_[index(side)].held[pages[i]] = std::min(page_, end - begin);
    uint32_t& old = other(side).held[pages[i]];
    old = std::min(old, positions.first - std::min(positions.first, begin));
  }
}

void Sides::copy_page(const KvTable::Copy& copy) {
  if (!are_two()) return halves_.front().forward->store().copy(copy);
  for (Half& half : halves_) {
    const uint32_t held = std::min(half.held[copy.from], copy.positions);
    const uint32_t own = half.forward->kv().page;
    for (uint32_t done = 0; done < held; done += own)
      half.forward->store().copy({own_page(half, copy.from, done), own_page(half, copy.to, done),
                                  std::min(own, held - done)});
    half.held[copy.to] = held;
  }
}

void Sides::read_page(KvPage page, KvRange range, std::span<std::byte> to, KvKind kind) {
  const Half& half = halves_[index(Side::decode)];
  const uint32_t end = range.first + range.count;
  if (are_two() && half.held[page] < end)
    hand_over(Side::decode, page, {half.held[page], end - half.held[page]});
  for_each_stretch(range, [&](KvRange stretch) {
    const uint64_t bytes = stretch.count * position_bytes(kind);
    half.forward->store().read(own_page(half, page, stretch.first),
                               {stretch.first % half.forward->kv().page, stretch.count},
                               to.first(bytes), kind);
    to = to.subspan(bytes);
  });
}

void Sides::write_page(KvPage page, KvRange range, std::span<const std::byte> from, KvKind kind) {
  const Half& half = halves_[index(Side::decode)];
  for_each_stretch(range, [&](KvRange stretch) {
    const uint64_t bytes = stretch.count * position_bytes(kind);
    half.forward->store().write(own_page(half, page, stretch.first),
                                {stretch.first % half.forward->kv().page, stretch.count},
                                from.first(bytes), kind);
    from = from.subspan(bytes);
  });
  wrote(Side::decode, {&page, 1}, range);
}

void Sides::read_state(uint32_t state, std::span<std::byte> to) {
  halves_.front().forward->store().read_state(state, to);
}

void Sides::write_state(uint32_t state, std::span<const std::byte> from) {
  halves_.front().forward->store().write_state(state, from);
}

}  // namespace tyto

#include "serve/receipt_store.h"

#include <algorithm>

namespace tyto {

std::string badge_of(const Receipt& receipt, bool has_failed) {
  if (has_failed) return "failed";
  if (receipt.plausibility.verdict == Verdict::refused) return "refused";
  // The badge is for work that went elsewhere than it was sent. A fallback beside a device that did
  // its work stands in the receipt.
  const bool only_host = std::all_of(
      receipt.devices.begin(), receipt.devices.end(),
      [](const DeviceCounters& device) { return device.is_host || !device.has_executed(); });
  if (receipt.recoveries > 0 || failed_dispatches(receipt) > 0 ||
      (!receipt.fallbacks.empty() && only_host))
    return "fell back";
  return has_virtual_device(receipt) ? "virtual" : "real";
}

void ReceiptStore::add(StoredReceipt receipt) {
  const std::lock_guard lock(mutex_);
  receipts_.push_back(std::move(receipt));
  if (receipts_.size() > most_) receipts_.pop_front();
  size_t profiles = 0;
  for (auto at = receipts_.rbegin(); at != receipts_.rend(); ++at) {
    if (at->profile == nullptr || ++profiles <= kMostProfiles) continue;
    at->profile.reset();
    at->why_no_profile = "it was too long ago: only the last recordings are kept";
  }
}

std::vector<StoredReceipt> ReceiptStore::list() const {
  const std::lock_guard lock(mutex_);
  std::vector<StoredReceipt> result(receipts_.rbegin(), receipts_.rend());
  for (StoredReceipt& receipt : result) receipt.json.clear();
  return result;
}

StoredReceipt ReceiptStore::find(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(receipts_.rbegin(), receipts_.rend(),
                                  [&](const StoredReceipt& receipt) { return receipt.id == id; });
  return found == receipts_.rend() ? StoredReceipt{} : *found;
}

}  // namespace tyto

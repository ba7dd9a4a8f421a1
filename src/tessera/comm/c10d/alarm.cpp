#include "tessera/comm/c10d/alarm.h"

#include "tessera/comm/c10d/group_watch.h"

namespace tessera::detail {

std::shared_ptr<Alarm> Alarm::shared() {
  static std::mutex mutex;
  static std::weak_ptr<Alarm> latest;
  const std::lock_guard lock(mutex);
  auto alarm = latest.lock();
  if (alarm == nullptr) latest = alarm = std::make_shared<Alarm>();
  return alarm;
}

Alarm::Alarm() : thread_([this] { run(); }) {}

Alarm::~Alarm() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void Alarm::run() {
  std::unique_lock lock(mutex_);
  while (!ends_) {
    if (!is_used_) {
      is_idle_ = true;
      changed_.wait(lock, [&] { return ends_ || !is_idle_; });
    }
    is_used_ = !watches_.empty();
    changed_.wait_for(lock, GroupWatch::kLookInterval, [&] { return ends_; });
    for (auto* watch : watches_) {
      if (watch->is_old_) watch->work_.abort();
      watch->is_old_ = true;
    }
  }
}

Alarm::Watch::Watch(Alarm& alarm, c10d::Work& work) : alarm_(alarm), work_(work) {
  const std::lock_guard lock(alarm.mutex_);
  place_ = alarm.watches_.insert(alarm.watches_.end(), this);
  alarm.is_used_ = true;
  if (!alarm.is_idle_) return;
  alarm.is_idle_ = false;
  alarm.changed_.notify_one();
}

Alarm::Watch::~Watch() {
  const std::lock_guard lock(alarm_.mutex_);
  alarm_.watches_.erase(place_);
}

}  // namespace tessera::detail

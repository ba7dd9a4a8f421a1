#pragma once

#include <condition_variable>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <thread>

#include <torch/csrc/distributed/c10d/Work.hpp>

namespace tessera::detail {

/// Wakes threads that wait in an engine which cannot be told to come back after a while.
///
/// gloo's messages are such: waiting for one with a time limit closes the connections of the whole
/// group when the time is up. Its waits can be aborted, though, and begun again, so a thread does that
/// from time to time. One is enough for a process. It sleeps as long as nothing is waited for, and
/// starting to wait costs no call of the system.
class Alarm {
 public:
  /// The process's alarm, made when it is needed first and kept as long as somebody holds it.
  [[nodiscard]] static std::shared_ptr<Alarm> shared();

  Alarm();
  ~Alarm();
  Alarm(const Alarm&) = delete;
  Alarm& operator=(const Alarm&) = delete;

  /// While it lives, waits for `work` are aborted from time to time, the first one after one or two
  /// of `GroupWatch::kLookInterval`.
  class Watch {
   public:
    Watch(Alarm& alarm, c10d::Work& work);
    ~Watch();
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

   private:
    friend class Alarm;

    Alarm& alarm_;
    c10d::Work& work_;
    bool is_old_ = false;
    std::list<Watch*>::iterator place_;
  };

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::list<Watch*> watches_;
  /// Something was waited for since the thread last looked.
  bool is_used_ = false;
  /// The thread sleeps until it is told.
  bool is_idle_ = false;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace tessera::detail

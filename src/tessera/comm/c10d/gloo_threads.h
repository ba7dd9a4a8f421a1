#pragma once

namespace tessera::detail {

/// Note [Gloo's threads]
///
/// gloo reads its connections in a thread of its own. Whoever sends holds the connection's lock while
/// it writes, and the reader does not wait for that lock: it looks again at once, and so keeps a
/// processor busy. Where ranks compute on all processors, that is often the sender's own: what the
/// other side sends at the same time wakes the reader while the sender writes, the system lets it run
/// in the sender's place as the write returns, and it turns round for a whole time slice of 3 or 4 ms
/// before the sender can go on and let go of the lock.
///
/// A thread scheduled as a batch never takes a running thread's place when it wakes: it runs when one
/// of them waits, or has used up its slice. Two ranks on two processors that exchange 16 kB after
/// every 0.5 ms of work wait 0.23 ms for it then (the median) instead of 0.91 ms.

/// Has the system schedule the threads of this process in which gloo reads its connections as batches.
/// Those that somebody has given another policy than the usual one keep it. Does nothing where there is
/// no such thing.
void calm_gloo_threads() noexcept;

}  // namespace tessera::detail

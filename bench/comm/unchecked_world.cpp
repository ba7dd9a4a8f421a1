#include "unchecked_world.h"

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

#include "tessera/comm/c10d/engines.h"
#include "tessera/comm/collectives.h"

namespace tessera::bench {
namespace {

/// A folder for the ranks of one host, which only this user may enter. Rank 0 makes and removes it.
class MeetingFolder {
 public:
  explicit MeetingFolder(const World& world) : is_owner_(world.rank() == 0) {
    if (is_owner_) {
      path_ = std::filesystem::temp_directory_path() / "tessera_bench_XXXXXX";
      if (mkdtemp(path_.data()) == nullptr) throw std::runtime_error("no folder for gloo's file");
    }
    path_ = all_gather_object(path_, world.group()).front();
  }
  ~MeetingFolder() {
    std::error_code ignored;
    if (is_owner_) std::filesystem::remove_all(path_, ignored);
  }
  MeetingFolder(const MeetingFolder&) = delete;
  MeetingFolder& operator=(const MeetingFolder&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  bool is_owner_;
  std::string path_;
};

}  // namespace

void in_unchecked_world(const World& world, const std::function<void(const World&)>& fn) {
  WorldOptions options = world.options();
  options.check = false;
  if (std::string_view(world.engine()) == "mpi") {
    fn(World(detail::make_mpi_world(options)));
    return;
  }
  const MeetingFolder folder(world);
  detail::Rendezvous rendezvous;
  rendezvous.file = folder.path() + "/store";
  fn(World(detail::make_gloo_world(world.rank(), world.size(), rendezvous, options)));
  // The file is needed until everybody has left the second world.
  barrier(world.group());
}

}  // namespace tessera::bench

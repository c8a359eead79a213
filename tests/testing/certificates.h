// certificates.h — certificates for tests of TLS, made with the program `openssl`. Header-only.
#ifndef REVERB_TESTS_TESTING_CERTIFICATES_H_
#define REVERB_TESTS_TESTING_CERTIFICATES_H_

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>

namespace reverb::test {

// A folder with an authority, which signs certificates.
class Authority {
 public:
  explicit Authority(std::filesystem::path folder) : folder_(std::move(folder)) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    Run("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -out ca.crt "
        "-days 30 "
        "-subj '/CN=authority of a test'");
  }
  ~Authority() { std::filesystem::remove_all(folder_); }
  Authority(const Authority&) = delete;
  Authority& operator=(const Authority&) = delete;

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string ca() const { return path("ca.crt"); }

  // Creates NAME.crt and NAME.key. `names` is "DNS:localhost,IP:127.0.0.1"; a negative number of days makes a
  // certificate that has expired.
  void Sign(const std::string& name, const std::string& names, int days = 30) const {
    Run("openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout " + name + ".key -out " +
        name + ".csr -subj '/CN=" + name + "' -addext 'subjectAltName=" + names + "'");
    Run("openssl x509 -req -in " + name +
        ".csr -CA ca.crt -CAkey ca.key -CAcreateserial -copy_extensions copy -days " + std::to_string(days) +
        " -out " + name + ".crt");
  }

 private:
  void Run(const std::string& command) const {
    const std::string quiet = "cd '" + folder_.string() + "' && " + command + " >/dev/null 2>&1";
    if (std::system(quiet.c_str()) != 0)
      throw std::runtime_error("failed: " + command);  // NOLINT(cert-env33-c)
  }

  const std::filesystem::path folder_;
};

}  // namespace reverb::test

#endif  // REVERB_TESTS_TESTING_CERTIFICATES_H_

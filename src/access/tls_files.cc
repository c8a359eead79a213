#include "access/tls_files.h"

#include <fcntl.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/log.h"

namespace reverb::internal {
namespace {

constexpr std::chrono::seconds kLookInterval{1};
constexpr size_t kMaxPemBytes = size_t{16} << 20;

using BioPtr = std::unique_ptr<BIO, int (*)(BIO*)>;
using CertificatePtr = std::unique_ptr<X509, void (*)(X509*)>;
using KeyPtr = std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)>;

Status TlsProblem(const std::string& what, const std::string& path, const std::string& why) {
  return Status::InvalidArgument("TLS: the " + what + " \"" + path + "\" " + why);
}

Result<std::string> ReadPem(const std::string& what, const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return TlsProblem(what, path, std::string("cannot be read: ") + std::strerror(errno));
  std::string text;
  char part[4096];
  ssize_t size = 0;
  while ((size = read(fd, part, sizeof part)) > 0 && text.size() <= kMaxPemBytes) {
    text.append(part, static_cast<size_t>(size));
  }
  const int error = errno;
  (void)close(fd);
  if (size < 0) return TlsProblem(what, path, std::string("cannot be read: ") + std::strerror(error));
  if (text.size() > kMaxPemBytes) return TlsProblem(what, path, "is larger than 16 MiB");
  return text;
}

BioPtr Open(const std::string& text) {
  return {BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), &BIO_free};
}

// A file without a passphrase must not make OpenSSL ask for one at the terminal.
int NoPassphrase(char* /*buffer*/, int /*size*/, int /*is_writing*/, void* /*data*/) { return -1; }

Result<CertificatePtr> FirstCertificate(const std::string& what, const std::string& path,
                                        const std::string& text) {
  ERR_clear_error();
  const BioPtr bio = Open(text);
  CertificatePtr certificate(PEM_read_bio_X509(bio.get(), nullptr, &NoPassphrase, nullptr), &X509_free);
  ERR_clear_error();
  if (certificate == nullptr) return TlsProblem(what, path, "has no certificate in PEM");
  return certificate;
}

Status CheckPair(const std::string& certificate_path, const std::string& certificate,
                 const std::string& key_path, const std::string& key) {
  REVERB_ASSIGN_OR_RETURN(const CertificatePtr parsed,
                          FirstCertificate("certificate", certificate_path, certificate));
  ERR_clear_error();
  const BioPtr bio = Open(key);
  const KeyPtr private_key(PEM_read_bio_PrivateKey(bio.get(), nullptr, &NoPassphrase, nullptr),
                           &EVP_PKEY_free);
  const bool is_pair = private_key != nullptr && X509_check_private_key(parsed.get(), private_key.get()) == 1;
  ERR_clear_error();
  if (private_key == nullptr)
    return TlsProblem("key", key_path, "has no private key in PEM without a passphrase");
  if (!is_pair) {
    return TlsProblem("key", key_path, "is not that of the certificate \"" + certificate_path + "\"");
  }
  return Status::Ok();
}

// Logs what clients will refuse.
void WarnAboutDates(const std::string& path, const std::string& text) {
  const Result<CertificatePtr> certificate = FirstCertificate("certificate", path, text);
  if (!certificate.ok()) return;
  const char* problem = nullptr;
  if (X509_cmp_current_time(X509_get0_notAfter(certificate->get())) < 0) problem = "has expired";
  if (X509_cmp_current_time(X509_get0_notBefore(certificate->get())) > 0) problem = "is not valid yet";
  if (problem == nullptr) return;
  Log(LogLevel::kWarning, "TLS: the certificate \"" + path + "\" " + problem + "; clients will refuse it");
}

// Returns the file with the authorities that the system trusts.
std::string SystemAuthorities() {
  if (const char* chosen = std::getenv("SSL_CERT_FILE"); chosen != nullptr && *chosen != '\0') return chosen;
  for (const char* path : {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
                           "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"}) {
    if (access(path, R_OK) == 0) return path;
  }
  return "/etc/ssl/certs/ca-certificates.crt";
}

}  // namespace

Result<ServerTlsTexts> ReadServerTls(const ServerTls& files) {
  if (files.certificate.empty() || files.key.empty()) {
    return Status::InvalidArgument(std::string("TLS: the server has no ") +
                                   (files.certificate.empty() ? "certificate" : "key") +
                                   "; give the paths of both, in PEM");
  }
  ServerTlsTexts texts;
  REVERB_ASSIGN_OR_RETURN(texts.certificate, ReadPem("certificate", files.certificate));
  REVERB_ASSIGN_OR_RETURN(texts.key, ReadPem("key", files.key));
  REVERB_RETURN_IF_ERROR(CheckPair(files.certificate, texts.certificate, files.key, texts.key));
  WarnAboutDates(files.certificate, texts.certificate);
  if (!files.client_ca.empty()) {
    REVERB_ASSIGN_OR_RETURN(texts.client_ca, ReadPem("client_ca", files.client_ca));
    REVERB_RETURN_IF_ERROR(FirstCertificate("client_ca", files.client_ca, texts.client_ca).status());
  }
  return texts;
}

Result<ClientTlsTexts> ReadClientTls(const ClientTls& files) {
  ClientTlsTexts texts;
  const std::string ca = files.ca.empty() ? SystemAuthorities() : files.ca;
  REVERB_ASSIGN_OR_RETURN(texts.ca, ReadPem("ca", ca));
  REVERB_RETURN_IF_ERROR(FirstCertificate("ca", ca, texts.ca).status());
  if (files.certificate.empty() != files.key.empty()) {
    return Status::InvalidArgument(std::string("TLS: the client has a ") +
                                   (files.key.empty() ? "certificate and no key" : "key and no certificate") +
                                   "; give both or neither");
  }
  if (!files.certificate.empty()) {
    REVERB_ASSIGN_OR_RETURN(texts.certificate, ReadPem("certificate", files.certificate));
    REVERB_ASSIGN_OR_RETURN(texts.key, ReadPem("key", files.key));
    REVERB_RETURN_IF_ERROR(CheckPair(files.certificate, texts.certificate, files.key, texts.key));
  }
  texts.server_name = files.server_name;
  return texts;
}

// --- The files of a server ---

Result<std::shared_ptr<TlsFiles>> TlsFiles::Load(ServerTls files) {
  std::shared_ptr<TlsFiles> loaded(new TlsFiles(std::move(files)));
  REVERB_RETURN_IF_ERROR(loaded->Reload());
  return loaded;
}

TlsFiles::Stamps TlsFiles::StampsOfFiles() const {
  constexpr int64_t kNanos = 1'000'000'000;
  Stamps stamps{};
  size_t i = 0;
  for (const std::string* path : {&files_.certificate, &files_.key, &files_.client_ca}) {
    struct stat about {};
    if (!path->empty() && stat(path->c_str(), &about) == 0) {
      stamps[i] = {static_cast<int64_t>(about.st_ino), static_cast<int64_t>(about.st_size),
                   about.st_ctim.tv_sec * kNanos + about.st_ctim.tv_nsec};
    }
    ++i;
  }
  return stamps;
}

Status TlsFiles::Read() {
  stamps_ = StampsOfFiles();  // first: a change while they are read is seen later
  REVERB_ASSIGN_OR_RETURN(ServerTlsTexts texts, ReadServerTls(files_));
  texts_ = std::make_shared<const ServerTlsTexts>(std::move(texts));
  return Status::Ok();
}

Status TlsFiles::Reload() {
  MutexLock lock(&mu_);
  return Read();
}

std::shared_ptr<const ServerTlsTexts> TlsFiles::Current() {
  MutexLock lock(&mu_);
  const TimePoint now = RealClock()->Now();
  if (now - last_look_ < kLookInterval) return texts_;
  last_look_ = now;
  if (StampsOfFiles() == stamps_) return texts_;
  const Status status = Read();
  Log(status.ok() ? LogLevel::kInfo : LogLevel::kError,
      status.ok() ? "TLS: read the certificate \"" + files_.certificate + "\" again"
                  : std::string(status.message()) + "; the certificate that was read before stays in use");
  return texts_;
}

}  // namespace reverb::internal

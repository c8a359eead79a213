#include "config_sections.h"

#include <utility>

namespace reverb::program {

void ReadTls(ConfigReader& in, const toml::table& table, const ConfigTarget& to) {
  in.CheckKeys(table, "tls.", {"certificate", "key", "client_ca"}, "");
  ServerTls tls;
  in.PathInto(table, "certificate", "tls.", "\"/etc/reverb/server.crt\"", &tls.certificate);
  in.PathInto(table, "key", "tls.", "\"/etc/reverb/server.key\"", &tls.key);
  in.PathInto(table, "client_ca", "tls.", "\"/etc/reverb/clients.crt\"", &tls.client_ca);
  // A section without any key is like none, so that the file that shows every key can have it.
  if (table.empty()) return;
  if (tls.certificate.empty() || tls.key.empty()) {
    in.Problem(table, std::string("key \"tls.") + (tls.certificate.empty() ? "certificate" : "key") +
                          "\" is missing; TLS needs the files of a certificate and its key, in PEM");
  }
  to.options->tls = std::move(tls);
}

void ReadAuth(ConfigReader& in, const toml::table& table, const ConfigTarget& to) {
  in.CheckKeys(table, "auth.", {"tokens_file", "trust_same_user"}, "");
  AuthOptions auth;
  in.PathInto(table, "tokens_file", "auth.", "\"/etc/reverb/tokens\"", &auth.tokens_file);
  if (const toml::node* node = table.get("trust_same_user")) {
    auth.trust_same_user = in.Boolean(*node, "auth.trust_same_user").value_or(false);
  }
  if (table.empty()) return;
  if (auth.tokens_file.empty()) {
    in.Problem(table, "key \"auth.tokens_file\" is missing; `reverb token new` creates such a file");
  }
  to.options->auth = std::move(auth);
}

}  // namespace reverb::program

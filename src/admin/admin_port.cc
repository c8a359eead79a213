#include "admin/admin_port.h"

#include <chrono>
#include <optional>
#include <utility>

#include "access/rights.h"
#include "access/token_file.h"
#include "admin/admin_json.h"
#include "admin/embedded_files.h"
#include "admin/metrics.h"
#include "admin/query.h"
#include "view/json.h"
#include "view/shown_text.h"

namespace reverb::internal {
namespace {

// Events of several streams within this time share one reading of the server, which visits all tables.
constexpr Duration kMaxEventAge = std::chrono::milliseconds(150);

constexpr char kJson[] = "application/json";

HttpResponse Error(int status, std::string_view message) {
  return {.status = status, .content_type = kJson, .body = ErrorJson(message)};
}

int HttpStatusOf(StatusCode code) {
  switch (code) {
    case StatusCode::kInvalidArgument:
      return 400;
    case StatusCode::kUnauthenticated:
      return 401;
    case StatusCode::kPermissionDenied:
      return 403;
    case StatusCode::kNotFound:
      return 404;
    case StatusCode::kUnavailable:
    case StatusCode::kCancelled:
      return 503;
    default:
      return 500;
  }
}

HttpResponse ErrorOf(const Status& status) {
  HttpResponse response = Error(HttpStatusOf(status.code()), status.message());
  if (response.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer realm=\"reverb\"");
  return response;
}

std::string_view PathOf(const HttpRequest& request) {
  const std::string_view target = request.target;
  return target.substr(0, target.find('?'));
}

// Returns the hashes of the elements of a page that are named `tag`, as sources of a Content-Security-Policy.
std::string HashesOf(std::string_view page, const std::string& tag) {
  std::string hashes;
  size_t at = 0;
  while ((at = page.find("<" + tag, at)) != std::string_view::npos) {
    const size_t begin = page.find('>', at);
    const size_t end = page.find("</" + tag + ">", at);
    if (begin == std::string_view::npos || end == std::string_view::npos) break;
    hashes += " 'sha256-" + Base64(HashToken(page.substr(begin + 1, end - begin - 1))) + "'";
    at = end;
  }
  return hashes.empty() ? " 'none'" : hashes;
}

// Permits the scripts and styles that the page has, and no other. Its icon is a data: image.
std::string PolicyOf(std::string_view page) {
  return "default-src 'none'; script-src" + HashesOf(page, "script") + "; style-src" +
         HashesOf(page, "style") +
         "; img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
}

}  // namespace

AdminPort::AdminPort(Options options, HostCheck hosts)
    : options_(std::move(options)), hosts_(std::move(hosts)), page_policy_(PolicyOf(PageHtml())) {}

AdminPort::~AdminPort() { Stop(); }

Result<std::unique_ptr<AdminPort>> AdminPort::Start(const Options& options) {
  REVERB_ASSIGN_OR_RETURN(const HostAndPort listen, SplitAddress(options.listen));
  REVERB_ASSIGN_OR_RETURN(HostCheck hosts, HostCheck::Make(listen.host, options.hosts));
  std::unique_ptr<AdminPort> port(new AdminPort(options, std::move(hosts)));
  HttpOptions http{.address = options.listen, .tls = options.tls};
  http.handler = [raw = port.get()](const HttpRequest& request) { return raw->Handle(request); };
  // A load balancer must get its answer while tables are being read.
  http.is_quick = [](const HttpRequest& request) { return PathOf(request) == "/healthz"; };
  Result<std::unique_ptr<HttpServer>> started = HttpServer::Start(http);
  if (!started.ok() && started.status().code() == StatusCode::kAlreadyExists && options.any_port_if_taken) {
    http.address = listen.host + ":0";
    started = HttpServer::Start(http);
  }
  REVERB_ASSIGN_OR_RETURN(port->http_, std::move(started));
  port->address_ = listen.host + ":" + std::to_string(port->http_->port());
  return port;
}

void AdminPort::Serve(std::shared_ptr<AdminSource> source) {
  MutexLock lock(&mu_);
  source_ = std::move(source);
  not_ready_.clear();
}

void AdminPort::NotReady(std::string reason) {
  MutexLock lock(&mu_);
  not_ready_ = std::move(reason);
}

void AdminPort::Stop() {
  if (http_) http_->Stop();
}

HttpResponse AdminPort::Handle(const HttpRequest& request) {
  HttpResponse response = Route(request);
  response.headers.emplace_back("Cache-Control", "no-store");
  response.headers.emplace_back("X-Content-Type-Options", "nosniff");
  response.headers.emplace_back("Referrer-Policy", "no-referrer");
  response.headers.emplace_back("Cross-Origin-Resource-Policy", "same-origin");
  return response;
}

HttpResponse AdminPort::Route(const HttpRequest& request) {
  if (request.has_conflicts)
    return Error(400, "the request has a header twice: Host, Origin or Authorization");
  if (const Status status = hosts_.Check(request.host, request.origin); !status.ok()) return ErrorOf(status);
  if (request.method != "GET" && request.method != "HEAD") {
    HttpResponse response =
        Error(405, "the admin port only reads: it answers GET and HEAD, not " + ShowName(request.method, 20));
    response.headers.emplace_back("Allow", "GET, HEAD");
    return response;
  }
  const Result<RequestTarget> target = ParseTarget(request.target);
  if (!target.ok()) return ErrorOf(target.status());
  const std::vector<std::string>& path = target->path;
  // --- Without a token ---
  if (path.empty()) {
    return {.content_type = "text/html; charset=utf-8",
            .body = std::string(PageHtml()),
            .headers = {{"Content-Security-Policy", page_policy_}, {"X-Frame-Options", "DENY"}}};
  }
  const std::string_view plain_path = PathOf(request);
  if (plain_path == "/healthz") return {.body = "ok\n"};
  if (plain_path == "/readyz") return Ready();
  if (plain_path == "/openapi.json") return {.content_type = kJson, .body = std::string(OpenApiJson())};
  // --- With one, where tokens are configured ---
  const bool is_items =
      path.size() == 5 && path[0] == "api" && path[1] == "v1" && path[2] == "tables" && path[4] == "items";
  if (!is_items && plain_path != "/metrics" && plain_path != "/api/v1/info" &&
      plain_path != "/api/v1/stream") {
    return Error(404, "there is nothing at \"" + ShowName(plain_path) +
                          "\"; there are /, /metrics, /healthz, /readyz, /openapi.json, /api/v1/info, "
                          "/api/v1/stream and /api/v1/tables/NAME/items");
  }
  const auto token = Authorize(request, plain_path);
  if (!token.ok()) return ErrorOf(token.status());
  if (plain_path == "/api/v1/stream") {
    Status status = target->CheckNames({"interval"});
    const Result<double> interval = target->Number("interval", 1, 0.2, 60);
    if (status.ok()) status = interval.status();
    if (!status.ok()) return ErrorOf(status);
    return Stream(std::chrono::duration_cast<Duration>(std::chrono::duration<double>(*interval)), *token);
  }
  if (is_items) {
    const auto query = [&]() -> Result<AdminItemsQuery> {
      REVERB_RETURN_IF_ERROR(target->CheckNames({"limit", "values", "images", "after"}));
      AdminItemsQuery asked{.table = path[3]};
      REVERB_ASSIGN_OR_RETURN(asked.limit, target->Integer("limit", 20, 1, 100));
      REVERB_ASSIGN_OR_RETURN(asked.values, target->Integer("values", 16, 0, 256));
      REVERB_ASSIGN_OR_RETURN(asked.images, target->Flag("images", false));
      REVERB_ASSIGN_OR_RETURN(asked.after, target->Key("after"));
      return asked;
    }();
    return query.ok() ? Items(path[3], *query, token->get()) : ErrorOf(query.status());
  }
  if (const Status status = target->CheckNames({}); !status.ok()) return ErrorOf(status);
  const Result<std::shared_ptr<const AdminState>> state = State();
  if (!state.ok()) return ErrorOf(state.status());
  if (plain_path == "/metrics") {
    return {.content_type = "text/plain; version=0.0.4; charset=utf-8",
            .body = MetricsText(VisibleTo(**state, token->get()))};
  }
  return {.content_type = kJson, .body = AdminInfoJson(VisibleTo(**state, token->get())) + "\n"};
}

Result<std::shared_ptr<const AccessToken>> AdminPort::Authorize(const HttpRequest& request,
                                                                std::string_view action) {
  const std::shared_ptr<AdminSource> source = this->source();
  std::string reason;
  {
    MutexLock lock(&mu_);
    reason = not_ready_;
  }
  // Nothing can be read yet, with any token.
  if (source == nullptr) return Status::Unavailable(reason);
  constexpr std::string_view kScheme = "bearer ";
  std::string_view text;
  if (request.authorization && request.authorization->size() > kScheme.size()) {
    std::string scheme = request.authorization->substr(0, kScheme.size());
    for (char& c : scheme) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
    if (scheme == kScheme) text = std::string_view(*request.authorization).substr(kScheme.size());
  }
  REVERB_ASSIGN_OR_RETURN(std::shared_ptr<const AccessToken> token, source->access().Authenticate(text));
  if (token) REVERB_RETURN_IF_ERROR(token->Check(Need::Of(Right::kRead), action, ""));
  return token;
}

Result<std::shared_ptr<const AdminState>> AdminPort::State(Duration max_age) {
  const std::shared_ptr<AdminSource> source = this->source();
  std::string reason;
  {
    MutexLock lock(&mu_);
    reason = not_ready_;
  }
  if (source == nullptr) return Status::Unavailable(reason);
  MutexLock lock(&state_mu_);
  const TimePoint now = RealClock()->Now();
  if (state_ == nullptr || now - state_time_ >= max_age) {
    REVERB_ASSIGN_OR_RETURN(AdminState state, source->State());
    if (!reason.empty()) state.not_ready_reason = reason;
    state_ = std::make_shared<const AdminState>(std::move(state));
    state_time_ = RealClock()->Now();
  }
  return state_;
}

HttpResponse AdminPort::Ready() {
  {
    MutexLock lock(&mu_);
    if (!not_ready_.empty()) return {.status = 503, .body = not_ready_ + "\n"};
  }
  const Result<std::shared_ptr<const AdminState>> state = State();
  if (!state.ok()) return {.status = 503, .body = std::string(state.status().message()) + "\n"};
  if ((*state)->not_ready_reason) return {.status = 503, .body = *(*state)->not_ready_reason + "\n"};
  return {.body = "ready\n"};
}

HttpResponse AdminPort::Items(const std::string& table, const AdminItemsQuery& query,
                              const AccessToken* token) {
  if (token != nullptr) {
    if (const Status status = token->Check(Need::Of(Right::kRead), "items", table); !status.ok()) {
      return ErrorOf(status);
    }
  }
  const Result<std::shared_ptr<const AdminState>> state = State();
  if (!state.ok()) return ErrorOf(state.status());
  const std::shared_ptr<AdminSource> source = this->source();
  const ServerInfo& info = (*state)->info;
  AdminItemsQuery asked = query;
  std::optional<int64_t> total;
  for (const TableInfo& each : info.tables) {
    if (each.name == table) total = each.current_size;
  }
  for (const RowTableInfo& each : info.row_tables) {
    if (each.settings.name != table) continue;
    total = each.counts.rows;
    asked.is_rows = true;
  }
  if (!total) {
    return Error(404,
                 "there is no table \"" + ShowName(table) + "\"; /api/v1/info has the names of all tables");
  }
  const Result<std::string> items = source->ItemsJson(asked, info);
  if (!items.ok()) return ErrorOf(items.status());
  JsonWriter head;
  head.BeginObject()
      .Field("table", table)
      .Field("kind", asked.is_rows ? "rows" : "items")
      .Field("total", *total);
  head.End();
  std::string body = head.text();
  body.back() = ',';  // instead of the brace
  return {.content_type = kJson, .body = body + *items + "}\n"};
}

HttpResponse AdminPort::Stream(Duration interval, std::shared_ptr<const AccessToken> token) {
  HttpResponse response{.content_type = "text/event-stream"};
  response.headers.emplace_back("X-Accel-Buffering", "no");  // nginx would hold events back
  response.interval = interval;
  response.next_event = [this, token = std::move(token)]() -> std::optional<std::string> {
    const AccessToken* now = nullptr;
    Result<std::shared_ptr<const AccessToken>> current = std::shared_ptr<const AccessToken>();
    if (token) {
      // The token may have been removed or changed.
      current = source()->access().Find(token->digest(), token->name());
      if (!current.ok() || !(*current)->Check(Need::Of(Right::kRead), "/api/v1/stream", "").ok()) {
        return std::nullopt;
      }
      now = current->get();
    }
    const Result<std::shared_ptr<const AdminState>> state = State(kMaxEventAge);
    if (!state.ok()) return std::nullopt;
    return "event: info\ndata: " + AdminInfoJson(VisibleTo(**state, now)) + "\n\n";
  };
  return response;
}

}  // namespace reverb::internal

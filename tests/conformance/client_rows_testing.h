// client_rows_testing.h — a fixture with a server that has one row table, for the tests of rows.
#ifndef REVERB_TESTS_CONFORMANCE_CLIENT_ROWS_TESTING_H_
#define REVERB_TESTS_CONFORMANCE_CLIENT_ROWS_TESTING_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "conformance/client_fixture.h"
#include "reverb/rows.h"
#include "testing/status_matchers.h"

namespace reverb::test {

// Values of a row, which a NewRow borrows.
struct Int32s {
  explicit Int32s(int64_t length, int32_t first = 0) : dims{length}, values(static_cast<size_t>(length)) {
    std::iota(values.begin(), values.end(), first);
  }
  TensorView view() const { return {DType::kInt32, dims, values.data()}; }
  std::vector<int64_t> dims;
  std::vector<int32_t> values;
};

inline std::vector<std::string> Keys(const RowBatch& batch) {
  std::vector<std::string> keys;
  for (const RowInfo& row : batch.rows()) keys.push_back(row.key);
  return keys;
}

class RowsFixture : public ClientFixture {
 protected:
  Rows StartRows(RowTableOptions options) {
    options.name = "rollouts";
    ServerOptions server;
    server.row_tables.push_back(std::move(options));
    SetEndpoint(&server);
    server_.emplace(Server::Start(std::move(server)).value());
    return Connect({.name = "trainer-1"}).RowTable("rollouts").value();
  }
  // Puts rows with one int32 column of this length.
  static Result<PutOutcome> Put(const Rows& rows, const std::vector<std::string>& keys,
                                const std::string& column, int64_t length, RowWriteMode mode = {},
                                const WaitOptions& wait = kPatience) {
    const Int32s values(length);
    mode.columns = {column};
    std::vector<NewRow> added;
    for (const std::string& key : keys) added.push_back({.key = key, .values = {values.view()}});
    return rows.Put(mode, added, wait);
  }
  // Puts rows with a column "tokens" of these lengths, by key.
  static void PutTokens(const Rows& rows, const std::map<std::string, int64_t>& lengths,
                        const std::string& group = "") {
    std::vector<Int32s> values;
    for (const auto& [key, length] : lengths) values.emplace_back(length);
    std::vector<NewRow> added;
    for (const auto& [key, length] : lengths) {
      added.push_back({.key = key, .group = group, .values = {values[added.size()].view()}});
    }
    ASSERT_OK(rows.Put({.columns = {"tokens"}}, added, kPatience).status());
  }
  // Puts rows "a" and "b", of which a reply holds one, and returns a client that cannot receive the second: it is too
  // large for it.
  Rows ClientThatCannotReadTheRest(const Rows& rows) {
    EXPECT_OK(Put(rows, {"a"}, "x", 10).status());
    EXPECT_OK(Put(rows, {"b"}, "x", 9 << 20).status());  // 36 MiB; a reply has 32
    return Connect({.max_response_bytes = uint64_t{20} << 20}).RowTable("rollouts").value();
  }
};

}  // namespace reverb::test

#endif  // REVERB_TESTS_CONFORMANCE_CLIENT_ROWS_TESTING_H_

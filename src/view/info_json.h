// info_json.h — the JSON of a server's information: of `reverb info --json` and of the admin port.
//
// docs/program.md documents the fields; include/reverb/server_info_fields.h lists them.
//
// Threads: free functions without state.
#ifndef REVERB_VIEW_INFO_JSON_H_
#define REVERB_VIEW_INFO_JSON_H_

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "reverb/selector.h"
#include "reverb/server_info.h"
#include "reverb/table_info.h"
#include "view/json.h"

namespace reverb::internal {

inline constexpr std::pair<std::string_view, SelectorOptions::Kind> kSelectorNames[] = {
    {"fifo", SelectorOptions::Kind::kFifo},        {"lifo", SelectorOptions::Kind::kLifo},
    {"uniform", SelectorOptions::Kind::kUniform},  {"min_heap", SelectorOptions::Kind::kMinHeap},
    {"max_heap", SelectorOptions::Kind::kMaxHeap}, {"prioritized", SelectorOptions::Kind::kPrioritized}};
// Returns the form that the program reads: "uniform", "prioritized=0.8".
std::string ShowSelector(const SelectorOptions& selector);
// Returns the name of a reason in JSON and in metrics: "min_size".
const char* WaitReasonWord(WaitReason reason);
// Returns the signature of a table as text; empty for none.
std::string ShowSignature(const TableInfo& table);

// Adds the fields that the information starts with. Absent transport: null.
void AddInfoHead(const std::string& address, const std::optional<std::string>& transport,
                 const ServerInfo& info, JsonWriter* json);
// Called in the object of each table, after its fields.
using TableJsonHook = std::function<void(const TableInfo& table, JsonWriter* json)>;
// Adds the fields of the information to the present object.
void AddInfoFields(const ServerInfo& info, JsonWriter* json, const TableJsonHook& hook = {});

// Adds an object with the fields of a table that have one of the given names in the JSON.
void AddTableJson(const TableInfo& table, std::span<const std::string_view> names, JsonWriter* json);
// Adds an object with what a checkpoint keeps of a row table.
void AddSavedRowTableJson(const RowTableInfo& table, JsonWriter* json);

}  // namespace reverb::internal

#endif  // REVERB_VIEW_INFO_JSON_H_

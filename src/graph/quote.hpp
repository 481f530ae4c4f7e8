// Names and strings from files: in messages, which must stay one line, and in the graph text.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lowtide::graph {

/// For messages: `name` in single quotes, control characters as \xNN, cut after 120 bytes (at a character's
/// boundary).
std::string in_quotes(std::string_view name);

/// For the graph text: `text` between two `mark`s; marks, backslashes and control characters are escaped by a
/// backslash.
std::string escaped(std::string_view text, char mark);

/// Reads what `escaped` wrote: `text[pos]` is the opening mark; moves `pos` behind the closing one. Nothing
/// when there is none.
std::optional<std::string> unescaped(std::string_view text, std::size_t& pos);

/// Letters, digits, underscores and dots, beginning with a letter or underscore: needs no quotes in the graph
/// text.
bool is_plain_name(std::string_view name);

/// May the character be part of a plain name?
bool is_name_character(char c);

}  // namespace lowtide::graph

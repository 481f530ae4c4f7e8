#include "archive/pytree_names.hpp"

#include <utility>

#include "lowtide/error.hpp"

namespace lowtide::archive {
namespace {

/// One child of a container: its key or field name, or nothing where it has only a position.
struct Step {
  std::optional<std::string> key;
  bool field = false;   // of a named tuple or data class
  bool number = false;  // an integer key
  std::size_t position = 0;
};
using Path = std::vector<Step>;

/// Walks a specification such as [1, {"type": "builtins.dict", "context": "[\"y\"]", "children_spec":
/// [...]}].
class TreeSpec {
 public:
  TreeSpec(Json text, std::optional<Json> named_tuples)
      : tree_(text.string(), "tree specification"), named_tuples_(named_tuples) {}

  std::vector<Path> leaves() const {
    std::vector<Path> found;
    Path path;
    walk(root(), path, found);
    return found;
  }

 private:
  Json root() const {
    const Json top = tree_.root();
    if (top.size() != 2) top.fail("expected a version and a tree");
    auto element = top.elements().begin();
    if ((*element).integer() != 1) top.fail("unknown version of tree specifications");
    return *++element;
  }

  void walk(Json node, Path& path, std::vector<Path>& found) const {
    const Json children = node.at("children_spec");
    if (node.at("type").is_null()) {
      found.push_back(path);
      return;
    }
    const std::vector<Step> steps = steps_of(node, children.size());
    std::size_t i = 0;
    for (const Json child : children.elements()) {
      path.push_back(steps[i++]);
      walk(child, path, found);
      path.pop_back();
    }
  }

  /// Dictionaries keep their keys in the context, as JSON; named tuples their type, of which the fields are
  /// listed elsewhere.
  std::vector<Step> steps_of(Json node, std::size_t count) const {
    std::vector<Step> steps(count);
    for (std::size_t i = 0; i < count; ++i) steps[i].position = i;
    const std::optional<Json> context = node.find("context");
    if (!context || !context->is_string()) return steps;
    if (named_tuples_) {
      if (const auto fields = named_tuples_->find(context->string()))
        return name_steps(steps, fields->at("field_names"), true);
    }
    try {
      const JsonTree keys(context->string(), "keys");
      if (const auto fields = data_class_fields(keys.root())) return name_steps(steps, *fields, true);
      if (keys.root().is_array()) return name_steps(steps, keys.root(), false);
    } catch (const ArchiveError&) {  // a context of an unknown container: its children have positions only
    }
    return steps;
  }

  /// A data class's context is [[fields that are set], [fields that are None]].
  static std::optional<Json> data_class_fields(Json context) {
    if (!context.is_array() || context.size() != 2) return std::nullopt;
    for (const Json list : context.elements()) {
      if (!list.is_array()) return std::nullopt;
    }
    return *context.elements().begin();
  }

  static std::vector<Step> name_steps(std::vector<Step> steps, Json names, bool fields) {
    if (names.size() != steps.size()) return steps;
    std::size_t i = 0;
    for (const Json name : names.elements()) {
      Step& step = steps[i++];
      if (name.is_integer()) {
        step.key = std::to_string(name.integer());
        step.number = true;
      }
      if (!name.is_string()) continue;
      step.key = std::string(name.string());
      step.field = fields;
    }
    return steps;
  }

  JsonTree tree_;
  std::optional<Json> named_tuples_;
};

std::string bracketed(const Step& step) {
  if (!step.key) return "[" + std::to_string(step.position) + "]";
  if (step.number) return "[" + *step.key + "]";
  return step.field ? "." + *step.key : "['" + *step.key + "']";
}

std::vector<std::string> argument_names(Json signature) {
  std::vector<std::string> names;
  if (const auto list = signature.find("forward_arg_names")) {
    for (const Json name : list->elements()) names.emplace_back(name.string());
  }
  return names;
}

}  // namespace

std::vector<std::string> input_names(Json signature, std::optional<Json> named_tuples) {
  const std::vector<std::string> arguments = argument_names(signature);
  std::vector<std::string> names;
  for (const Path& path : TreeSpec(signature.at("in_spec"), named_tuples).leaves()) {
    // The top is (args, kwargs).
    std::string name;
    if (path.size() >= 2 && path[0].position == 1) {
      name = path[1].key.value_or("");
    } else if (path.size() >= 2 && path[1].position < arguments.size()) {
      name = arguments[path[1].position];
    }
    for (std::size_t i = 2; i < path.size() && !name.empty(); ++i) name += bracketed(path[i]);
    names.push_back(std::move(name));
  }
  return names;
}

std::vector<std::string> output_names(Json signature, std::optional<Json> named_tuples) {
  std::vector<std::string> names;
  for (const Path& path : TreeSpec(signature.at("out_spec"), named_tuples).leaves()) {
    std::string name;
    bool keyed = false;
    for (const Step& step : path) {
      name += (name.empty() ? "" : ".") + step.key.value_or(std::to_string(step.position));
      keyed = keyed || step.key.has_value();
    }
    names.push_back(keyed ? std::move(name) : std::string());
  }
  return names;
}

}  // namespace lowtide::archive

#include "tensor_file/pickle.hpp"

#include <cstring>
#include <unordered_map>
#include <utility>

namespace lowtide::tensor_file::pickle {
namespace {

constexpr std::size_t kMostValues = 4'000'000;  // a state dict takes about 30 a tensor

enum Opcode : unsigned char {
  kMark = '(',
  kStop = '.',
  kNone = 'N',
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kLong1 = 0x8a,
  kBinFloat = 'G',
  kBinUnicode = 'X',
  kShortBinUnicode = 0x8c,
  kShortBinString = 'U',
  kShortBinBytes = 'C',
  kEmptyList = ']',
  kAppend = 'a',
  kAppends = 'e',
  kEmptyTuple = ')',
  kTuple = 't',
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kEmptyDict = '}',
  kSetItem = 's',
  kSetItems = 'u',
  kGlobal = 'c',
  kStackGlobal = 0x93,
  kReduce = 'R',
  kNewObj = 0x81,
  kBuild = 'b',
  kBinPersId = 'Q',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kMemoize = 0x94,
  kBinGet = 'h',
  kLongBinGet = 'j',
  kProto = 0x80,
  kFrame = 0x95,
};

}  // namespace

/// The stack machine. Every opcode takes at least one byte of text and makes at most one value.
class PickleMachine {
 public:
  PickleMachine(Pickle& pickle, std::string_view bytes) : pickle_(pickle), rest_(bytes) {}

  void run() {
    while (true) {
      const auto opcode = number<unsigned char>();
      if (opcode == kStop) break;
      step(opcode);
    }
    pickle_.root_ = pop();
  }

 private:
  void step(unsigned char opcode);
  /// Values that stand alone; false for other opcodes.
  bool step_leaf(unsigned char opcode);
  /// What is stored and fetched by number, and framing; false for other opcodes.
  bool step_memo(unsigned char opcode);

  std::string_view take(std::uint64_t size) {
    if (size > rest_.size()) throw PickleError("it ends early");
    const std::string_view bytes = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return bytes;
  }

  template <class T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }

  std::string_view line() {
    const std::size_t end = rest_.find('\n');
    if (end == std::string_view::npos) throw PickleError("it ends early");
    const std::string_view text = take(end);
    take(1);
    return text;
  }

  std::int64_t long_integer() {
    const std::string_view bytes = take(number<std::uint8_t>());
    if (bytes.size() > sizeof(std::int64_t)) throw PickleError("a number is too large");
    if (bytes.empty()) return 0;
    std::uint64_t value = (bytes.back() & 0x80) != 0 ? UINT64_MAX : 0;  // two's complement, little-endian
    std::memcpy(&value, bytes.data(), bytes.size());
    return static_cast<std::int64_t>(value);
  }

  Value* push(Kind kind) {
    if (pickle_.values_.size() >= kMostValues) throw PickleError("it has too many values");
    Value& value = pickle_.values_.emplace_back();
    value.kind = kind;
    stack_.push_back(&value);
    return &value;
  }
  void push_integer(Kind kind, std::int64_t integer) { push(kind)->integer = integer; }
  void push_text(std::string_view text) { push(Kind::text)->text = text; }
  void push_items(Kind kind, const std::vector<Value*>& items) {
    push(kind)->items.assign(items.begin(), items.end());
  }

  /// What lies on the stack above the innermost mark, or on the whole stack.
  std::size_t base() const { return marks_.empty() ? 0 : marks_.back(); }

  Value* pop() {
    if (stack_.size() <= base()) throw PickleError("its stack runs empty");
    Value* value = stack_.back();
    stack_.pop_back();
    return value;
  }

  std::vector<Value*> pop_many(std::size_t count) {
    if (stack_.size() - base() < count) throw PickleError("its stack runs empty");
    std::vector<Value*> values(stack_.end() - static_cast<std::ptrdiff_t>(count), stack_.end());
    stack_.resize(stack_.size() - count);
    return values;
  }

  std::vector<Value*> pop_to_mark() {
    if (marks_.empty()) throw PickleError("a mark is missing");
    std::vector<Value*> values = pop_many(stack_.size() - marks_.back());
    marks_.pop_back();
    return values;
  }

  /// Adds to the list, dict or call on top of the stack. Not to a tuple or text: those never change.
  void extend_top(const std::vector<Value*>& items) {
    if (stack_.size() <= base()) throw PickleError("its stack runs empty");
    Value* container = stack_.back();
    const bool fits =
        container->kind == Kind::list || container->kind == Kind::dict || container->kind == Kind::call;
    if (!fits) throw PickleError("it adds items to what is no container");
    container->items.insert(container->items.end(), items.begin(), items.end());
  }

  void put(std::uint32_t key) {
    if (stack_.size() <= base()) throw PickleError("its stack runs empty");
    memo_[key] = stack_.back();
  }

  void get(std::uint32_t key) {
    const auto found = memo_.find(key);
    if (found == memo_.end()) throw PickleError("it refers to a value it never stored");
    stack_.push_back(found->second);
  }

  Pickle& pickle_;
  std::string_view rest_;
  std::vector<Value*> stack_;
  std::vector<std::size_t> marks_;  // stack sizes
  std::unordered_map<std::uint32_t, Value*> memo_;
};

bool PickleMachine::step_leaf(unsigned char opcode) {
  switch (opcode) {
    case kNone:
      push(Kind::none);
      return true;
    case kNewTrue:
      push_integer(Kind::boolean, 1);
      return true;
    case kNewFalse:
      push_integer(Kind::boolean, 0);
      return true;
    case kBinInt:
      push_integer(Kind::integer, number<std::int32_t>());
      return true;
    case kBinInt1:
      push_integer(Kind::integer, number<std::uint8_t>());
      return true;
    case kBinInt2:
      push_integer(Kind::integer, number<std::uint16_t>());
      return true;
    case kLong1:
      push_integer(Kind::integer, long_integer());
      return true;
    case kBinFloat:
      take(sizeof(double)), push(Kind::real);
      return true;
    case kBinUnicode:
      push_text(take(number<std::uint32_t>()));
      return true;
    case kShortBinUnicode:
    case kShortBinString:
    case kShortBinBytes:
      push_text(take(number<std::uint8_t>()));
      return true;
    case kEmptyList:
      push(Kind::list);
      return true;
    case kEmptyTuple:
      push(Kind::tuple);
      return true;
    case kEmptyDict:
      push(Kind::dict);
      return true;
    case kGlobal: {
      const std::string module(line());
      push(Kind::global)->text = module + "." + std::string(line());
      return true;
    }
    default:
      return false;
  }
}

bool PickleMachine::step_memo(unsigned char opcode) {
  switch (opcode) {
    case kProto: {
      const auto protocol = number<std::uint8_t>();
      if (protocol < 2 || protocol > 5) throw PickleError("it has protocol " + std::to_string(protocol));
      return true;
    }
    case kFrame:
      take(sizeof(std::uint64_t));
      return true;
    case kBinPut:
      put(number<std::uint8_t>());
      return true;
    case kLongBinPut:
      put(number<std::uint32_t>());
      return true;
    case kMemoize:
      put(static_cast<std::uint32_t>(memo_.size()));
      return true;
    case kBinGet:
      get(number<std::uint8_t>());
      return true;
    case kLongBinGet:
      get(number<std::uint32_t>());
      return true;
    default:
      return false;
  }
}

void PickleMachine::step(unsigned char opcode) {
  if (step_leaf(opcode) || step_memo(opcode)) return;
  switch (opcode) {
    case kMark:
      marks_.push_back(stack_.size());
      return;
    case kAppend: {
      const auto items = pop_many(1);
      return extend_top(items);
    }
    case kSetItem: {
      const auto items = pop_many(2);
      return extend_top(items);
    }
    case kAppends: {
      const auto items = pop_to_mark();
      return extend_top(items);
    }
    case kSetItems: {
      const auto items = pop_to_mark();
      if (items.size() % 2 != 0) throw PickleError("a key has no value");
      return extend_top(items);
    }
    case kTuple:
      return push_items(Kind::tuple, pop_to_mark());
    case kTuple1:
      return push_items(Kind::tuple, pop_many(1));
    case kTuple2:
      return push_items(Kind::tuple, pop_many(2));
    case kTuple3:
      return push_items(Kind::tuple, pop_many(3));
    case kNewObj:
    case kReduce:
      return push_items(Kind::call, pop_many(2));
    case kBinPersId:
      return push_items(Kind::persistent, pop_many(1));
    case kStackGlobal: {
      const auto names = pop_many(2);
      push(Kind::global)->text = names[0]->text + "." + names[1]->text;
      return;
    }
    case kBuild: {
      pop();
      Value* object = pop();
      object->has_state = true;
      stack_.push_back(object);
      return;
    }
    default:
      throw PickleError("it has opcode " + std::to_string(opcode) + ", which no file of plain tensors needs");
  }
}

Pickle::Pickle(std::string_view bytes) {
  PickleMachine(*this, bytes).run();
}

}  // namespace lowtide::tensor_file::pickle

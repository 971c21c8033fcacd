#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace ge {
using graphStatus = uint32_t;
enum Format { FORMAT_ND = 2 };
enum DataType { DT_FLOAT = 0 };
class ShapeImpl;
class TensorDescImpl;
class TensorImpl;
class OperatorImpl;
class GraphImpl;

class AscendString {
 public:
  AscendString() = default;
  ~AscendString() = default;
  AscendString(const char *name);
  const char *GetString() const;
  bool operator==(const AscendString &other) const;

 private:
  std::shared_ptr<std::string> name_;
};

class Shape {
 public:
  Shape();
  ~Shape() = default;
  explicit Shape(const std::vector<int64_t> &dims);
  std::vector<int64_t> GetDims() const;
  size_t GetDimNum() const;

 private:
  std::shared_ptr<ShapeImpl> impl_;
};

class TensorDesc {
 public:
  TensorDesc();
  ~TensorDesc() = default;
  explicit TensorDesc(Shape shape, Format format = FORMAT_ND, DataType type = DT_FLOAT);
  TensorDesc(const TensorDesc &other);
  TensorDesc(TensorDesc &&other);
  TensorDesc &operator=(const TensorDesc &other);
  TensorDesc &operator=(TensorDesc &&other);
  Shape GetShape() const;
  Shape GetOriginShape() const;
  void SetShape(const Shape &shape);

 private:
  std::shared_ptr<TensorDescImpl> impl;
};

class Tensor {
 public:
  Tensor();
  ~Tensor() = default;
  explicit Tensor(const TensorDesc &desc);
  Tensor(const TensorDesc &desc, const uint8_t *data, size_t size);
  TensorDesc GetTensorDesc() const;

 private:
  std::shared_ptr<TensorImpl> impl;
};

class Operator {
 public:
  Operator() {}
  explicit Operator(const std::string &type);
  explicit Operator(const char *type);
  Operator(const std::string &name, const std::string &type);
  virtual ~Operator() = default;
  std::string GetName() const;
  std::string GetOpType() const;
  Operator &SetInput(const std::string &name, const Operator &source);
  Operator &SetAttr(const std::string &name, int64_t value);
  Operator &SetAttr(const std::string &name, const std::string &value);
  graphStatus GetAttr(const std::string &name, int64_t &value) const;
  TensorDesc GetInputDesc(const std::string &name) const;
  TensorDesc GetOutputDescByName(const char *name) const;

 private:
  std::shared_ptr<OperatorImpl> operator_impl_;
};

class Graph {
 public:
  explicit Graph(const std::string &name);
  ~Graph() = default;
  Graph &SetInputs(const std::vector<Operator> &inputs);
  std::string GetName() const;

 private:
  std::shared_ptr<GraphImpl> impl_;
};

class OperatorFactory {
 public:
  static Operator CreateOperator(const std::string &name, const std::string &type);
  static Operator CreateOperator(const char *name, const char *type);
  static bool IsExistOp(const std::string &type);
};

class StatusFactory {
 public:
  static StatusFactory *Instance();
  void RegisterErrorNo(uint32_t code, const std::string &text) {
    if (texts_.find(code) == texts_.end()) texts_[code] = text;
  }
  std::string GetErrDesc(uint32_t code) {
    auto found = texts_.find(code);
    return found == texts_.end() ? "" : found->second;
  }
  size_t Size() const { return texts_.size(); }

 private:
  StatusFactory() {}
  ~StatusFactory() {}
  std::map<uint32_t, std::string> texts_;
};
}  // namespace ge

#define REQUIRE(condition)                                              \
  do {                                                                  \
    if (!(condition)) {                                                 \
      std::fprintf(stderr, "line %d: %s\n", __LINE__, #condition);      \
      std::_Exit(1);                                                    \
    }                                                                   \
  } while (0)

/* Builds an object in poisoned memory, then copies, assigns, swaps and destroys it. */
template <class Type, class Build>
void exercise(Build build) {
  constexpr uint64_t guard = 0xAAAAAAAAAAAAAAAAull;
  struct {
    uint64_t before;
    alignas(Type) unsigned char place[sizeof(Type)];
    uint64_t after;
  } box;
  std::memset(static_cast<void *>(&box), 0xAA, sizeof box);
  Type *object = build(static_cast<void *>(box.place));
  REQUIRE(static_cast<void *>(object) == static_cast<void *>(box.place));
  REQUIRE(box.before == guard && box.after == guard);
  {
    Type copy(*object);
    Type other(copy);
    other = *object;
    std::swap(copy, other);
    std::vector<Type> many(5, *object);
    many.push_back(copy);
  }
  REQUIRE(box.before == guard && box.after == guard);
  object->~Type();
  REQUIRE(box.before == guard && box.after == guard);
}
#define BUILT_BY(Type, expression) exercise<Type>([&](void *place) { return new (place) Type(expression); })

/* What a generated operator class looks like (graph/operator_reg.h): it brings a virtual table of its own. */
class MatMul : public ge::Operator {
 public:
  explicit MatMul(const char *) : ge::Operator("MatMul"), marker(42) {}
  ~MatMul() override { ++destroyed; }
  int marker;
  static int destroyed;
};
int MatMul::destroyed = 0;

static bool is_empty(const std::string &text) {
  // Only libstdc++'s own empty text may be destroyed without having been allocated.
  return text.empty() && text == "" && text.data() == std::string().data();
}

int main() {
  const std::string name("name"), type("type");
  const ge::Operator source(name, type);

  BUILT_BY(ge::Operator, name);
  BUILT_BY(ge::Operator, "type");
  exercise<ge::Operator>([&](void *place) { return new (place) ge::Operator(name, type); });
  BUILT_BY(ge::Operator, ge::OperatorFactory::CreateOperator(name, type));
  BUILT_BY(ge::Operator, ge::OperatorFactory::CreateOperator("name", "type"));
  REQUIRE(!ge::OperatorFactory::IsExistOp(type));
  ge::Operator *on_heap = new ge::Operator(ge::OperatorFactory::CreateOperator(name, type));
  delete on_heap; /* through its own table */
  {
    ge::Operator returned = ge::OperatorFactory::CreateOperator(name, type);
    ge::Operator *pointer = &returned;
    asm volatile("" : "+r"(pointer)); /* keep the compiler from knowing what it points to */
    pointer->~Operator();             /* through the stand-in's table */
    new (&returned) ge::Operator();
  }
  ge::Operator *derived = new MatMul("one");
  REQUIRE(static_cast<MatMul *>(derived)->marker == 42);
  derived->SetInput(name, source).SetAttr(name, int64_t{7}).SetAttr(name, type);
  REQUIRE(&derived->SetAttr(name, int64_t{8}) == derived);
  delete derived;
  REQUIRE(MatMul::destroyed == 1);

  {
    std::string text = source.GetName();
    REQUIRE(is_empty(text));
    REQUIRE(is_empty(source.GetOpType()));
    std::string copy(text);
    copy += "longer";
    text.append(100, 'x');
    REQUIRE(copy == "longer" && text.size() == 100 && is_empty(source.GetName()));
  }
  BUILT_BY(std::string, source.GetName());

  int64_t value = 5;
  REQUIRE(source.GetAttr(name, value) != 0 && value == 5);

  const std::vector<int64_t> dims{2, 3};
  const ge::Shape shape(dims);
  BUILT_BY(ge::Shape, );
  BUILT_BY(ge::Shape, dims);
  REQUIRE(shape.GetDims().empty() && shape.GetDimNum() == 0);
  BUILT_BY(std::vector<int64_t>, shape.GetDims());
  std::vector<int64_t> grown = shape.GetDims();
  grown.push_back(1);
  REQUIRE(grown.size() == 1 && grown[0] == 1);

  const ge::TensorDesc desc(shape);
  BUILT_BY(ge::TensorDesc, );
  BUILT_BY(ge::TensorDesc, shape);
  BUILT_BY(ge::TensorDesc, desc);
  BUILT_BY(ge::TensorDesc, ge::TensorDesc(shape));
  BUILT_BY(ge::TensorDesc, source.GetInputDesc(name));
  BUILT_BY(ge::TensorDesc, source.GetOutputDescByName("name"));
  BUILT_BY(ge::Shape, desc.GetShape());
  BUILT_BY(ge::Shape, desc.GetOriginShape());
  {
    ge::TensorDesc target;
    REQUIRE(&(target = desc) == &target);
    REQUIRE(&(target = ge::TensorDesc(shape)) == &target);
    target.SetShape(shape);
  }

  BUILT_BY(ge::Tensor, );
  BUILT_BY(ge::Tensor, desc);
  exercise<ge::Tensor>([&](void *place) { return new (place) ge::Tensor(desc, nullptr, 0); });
  BUILT_BY(ge::TensorDesc, ge::Tensor(desc).GetTensorDesc());

  BUILT_BY(ge::AscendString, "text");
  const ge::AscendString text("text");
  REQUIRE(text.GetString() != nullptr && std::strlen(text.GetString()) == 0);
  REQUIRE(!(text == ge::AscendString("other")));

  BUILT_BY(ge::Graph, name);
  {
    ge::Graph graph(name);
    const std::vector<ge::Operator> inputs(3, source);
    REQUIRE(&graph.SetInputs(inputs) == &graph);
    REQUIRE(is_empty(graph.GetName()));
  }

  ge::StatusFactory *statuses = ge::StatusFactory::Instance();
  REQUIRE(statuses != nullptr && statuses == ge::StatusFactory::Instance());
  REQUIRE(statuses->Size() == 0 && statuses->GetErrDesc(1).empty());
  for (uint32_t code = 0; code < 1000; ++code) statuses->RegisterErrorNo(code * 7919 % 1000, "text");
  REQUIRE(statuses->Size() == 1000 && statuses->GetErrDesc(999) == "text" && statuses->GetErrDesc(1000).empty());
  return 0;
}

// Writes ELFs of control code and instruction streams as XRT's and mlir-aie's sources describe them
// (no compiler that makes real ones is at hand): the structure is theirs, the code inside made up.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "device/npu/formats/air_models.h"
#include "device/npu/formats/transaction.h"

namespace tyto::test {

inline DmaDescriptor linear_descriptor(uint64_t bytes) {
  return {static_cast<uint32_t>(bytes / 4)};
}

template <typename T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

struct MadeElf {
  std::string kernel = "main", instance = "o_ffn";
  uint32_t arguments = 0;
  std::vector<AddressPatch> patches = {};
  uint32_t columns = 8;
  uint32_t seed = 0;         // for the control code that is no descriptor
  uint32_t text_words = 64;  // at least; the descriptors come first
  std::vector<uint32_t> pdi_bytes = {};
  uint32_t pdi_copies = 1;  // one for each kernel of an image that has several
  uint8_t os_abi = 69, abi_version = 0x10, elf_class = 1;
  char argument_type = 'P';  // another one: a scalar
  // Not empty: the control code is a stream of operations, the descriptors' and then these.
  std::vector<std::vector<uint32_t>> operations = {};
  uint32_t scratchpad_bytes = 0;
};

// Operations of the control code.
inline std::vector<uint32_t> create_scratchpad(uint32_t bytes) {
  return {10, bytes, 0, 0};
}
inline std::vector<uint32_t> write_word(uint32_t address, uint32_t value) {
  return {0, 0, address, 0, value, 6 * 4};
}
// `element_bytes` of an address; 0: the word is added as it is.
inline std::vector<uint32_t> update_register(uint32_t place, uint32_t element_bytes,
                                             uint32_t address) {
  constexpr uint32_t kMultiply = 0, kAdd = 1;
  return {12 | place << 8 | (element_bytes != 0 ? kMultiply : kAdd) << 16, element_bytes, address};
}
constexpr uint32_t kDescriptorAddress = 0x1d044, kCoreAddress = 0x0020'0400;

// What mlir-aie writes for a decode: the words of the scratchpad, the cores', the cache's address.
inline std::vector<std::vector<uint32_t>> decode_operations(uint32_t words = 2) {
  return {create_scratchpad(words * 4), write_word(kCoreAddress, 0),
          update_register(1, 0, kCoreAddress), update_register(0, 2, kDescriptorAddress)};
}

// Section by section, with the offsets of names and bytes filled in at the end.
class ElfWriter {
 public:
  uint32_t add(const std::string& name, uint32_t type, std::string data, uint32_t link = 0,
               uint32_t info = 0) {
    sections_.push_back({name, type, std::move(data), link, info});
    return static_cast<uint32_t>(sections_.size());  // 0 is the one that all ELFs begin with
  }

  std::string file(const MadeElf& made) {
    std::string names(1, '\0');
    std::vector<uint32_t> name_at;
    add(".shstrtab", 3, "");
    for (const Section& section : sections_) {
      name_at.push_back(static_cast<uint32_t>(names.size()));
      names += section.name + '\0';
    }
    sections_.back().data = names;
    std::string out(
        "\x7f"
        "ELF",
        4);
    for (const uint8_t byte :
         {made.elf_class, uint8_t{1}, uint8_t{1}, made.os_abi, made.abi_version})
      put(out, byte);
    out.resize(52);
    std::string table(40, '\0');
    for (size_t i = 0; i < sections_.size(); ++i) {
      const Section& section = sections_[i];
      const auto at = static_cast<uint32_t>(out.size());
      const auto size = static_cast<uint32_t>(section.data.size());
      for (const uint32_t value :
           {name_at[i], section.type, 0u, 0u, at, size, section.link, section.info, 4u, 0u})
        put(table, value);
      out += section.data;
    }
    const auto table_at = static_cast<uint32_t>(out.size());
    const uint16_t numbers[] = {40, static_cast<uint16_t>(sections_.size() + 1),
                                static_cast<uint16_t>(sections_.size())};
    std::memcpy(&out[32], &table_at, 4);
    std::memcpy(&out[46], numbers, sizeof(numbers));
    return out + table;
  }

 private:
  struct Section {
    std::string name;
    uint32_t type;
    std::string data;
    uint32_t link, info;
  };
  std::vector<Section> sections_;
};

inline void put_symbol(std::string& table, std::string& strings, const std::string& name,
                       uint8_t type, uint16_t section, uint32_t size = 0) {
  put(table, static_cast<uint32_t>(strings.size()));
  strings += name + '\0';
  put(table, uint32_t{0});
  put(table, size);
  put(table, type);
  put(table, uint8_t{0});
  put(table, section);
}

// A stream with a header, and the descriptors in operations that write them.
inline std::string control_stream(const MadeElf& made) {
  std::vector<uint32_t> words;
  for (const AddressPatch& patch : made.patches) {
    words.insert(words.end(), {1, 0, 0x1d040, (4 + kDescriptorWords) * 4});
    for (const uint32_t word : patch.descriptor.value_or(DmaDescriptor{})) words.push_back(word);
  }
  for (const std::vector<uint32_t>& operation : made.operations)
    words.insert(words.end(), operation.begin(), operation.end());
  std::string text;
  const auto operations = static_cast<uint32_t>(made.patches.size() + made.operations.size());
  for (const uint32_t word : {6u << 24 | 4u << 16 | 1u << 8, 1u << 8 | 8, operations,
                              static_cast<uint32_t>((words.size() + 4) * 4)})
    put(text, word);
  for (const uint32_t word : words) put(text, word);
  return text;
}

inline std::string elf_file(const MadeElf& made) {
  std::string text;
  const bool is_stream = !made.operations.empty();
  if (is_stream) text = control_stream(made);
  const size_t first = is_stream ? 4 + 4 : 0, step = kDescriptorWords + (is_stream ? 4 : 0);
  for (const AddressPatch& patch : made.patches)
    if (!is_stream)
      for (const uint32_t word : patch.descriptor.value_or(DmaDescriptor{})) put(text, word);
  for (uint32_t i = 0; !is_stream && i < made.text_words; ++i) put(text, made.seed + i);

  std::string symbols(16, '\0'), names(1, '\0');
  std::string signature = "_Z" + std::to_string(made.kernel.size()) + made.kernel;
  for (uint32_t i = 0; i < made.arguments; ++i)
    signature += made.argument_type == 'P' ? "Pc" : std::string(1, made.argument_type);
  put_symbol(symbols, names, signature, 2, 0);
  put_symbol(symbols, names, made.instance, 1, 1);

  ElfWriter writer;
  constexpr uint16_t kTextSection = 1, kFirstPdi = 2;
  writer.add(".ctrltext.0", 1, text);
  std::string members;
  put(members, uint32_t{1});
  put(members, uint32_t{kTextSection});
  std::string dynamic(16, '\0'), dynamic_names(1, '\0'), relocations;
  uint32_t symbol = 0;
  for (size_t i = 0; i < made.patches.size(); ++i) {
    put_symbol(dynamic, dynamic_names, std::to_string(made.patches[i].argument), 1, kTextSection);
    put(relocations, static_cast<uint32_t>((first + i * step) * 4));
    put(relocations, uint32_t{++symbol << 8 | 5});
    put(relocations, static_cast<uint32_t>(made.patches[i].offset));
  }
  for (size_t i = 0; i < made.pdi_bytes.size(); ++i) {
    const std::string name = ".pdi." + std::to_string(i);
    writer.add(name, 1, std::string(made.pdi_bytes[i], 'p'));
    put(members, static_cast<uint32_t>(kFirstPdi + i));
    put_symbol(dynamic, dynamic_names, name, 1, kTextSection);
    put(relocations, uint32_t{0});
    put(relocations, uint32_t{++symbol << 8 | 8});
    put(relocations, uint32_t{0});
  }
  if (made.scratchpad_bytes > 0) {
    put_symbol(dynamic, dynamic_names, "scratch-pad-ctrl", 1, kTextSection, made.scratchpad_bytes);
    put(relocations, uint32_t{8});
    put(relocations, uint32_t{++symbol << 8 | 5});
    put(relocations, uint32_t{0});
  }
  for (uint32_t copy = 1; copy < made.pdi_copies; ++copy)
    for (size_t i = 0; i < made.pdi_bytes.size(); ++i)
      writer.add(".pdi." + std::to_string(i), 1, std::string(made.pdi_bytes[i], 'p'));
  const uint32_t strings = writer.add(".strtab", 3, names);
  const uint32_t table = writer.add(".symtab", 2, symbols, strings);
  writer.add(".group", 17, members, table, 2);
  writer.add(".dynsym", 11, dynamic);
  writer.add(".dynstr", 3, dynamic_names);
  writer.add(".rela.dyn", 4, relocations);
  std::string note;
  for (const uint32_t value : {4u, 4u, 1u}) put(note, value);
  note += std::string("XRT\0", 4);
  put(note, made.columns);
  writer.add(".note.xrt.configuration", 7, note);
  return writer.file(made);
}

// An ELF that touches all of each argument that is not dead.
inline MadeElf elf_of(const AirProgram& program, uint32_t seed = 0) {
  MadeElf made;
  made.instance = program.entry.substr(program.entry.find(':') + 1);
  made.arguments = static_cast<uint32_t>(program.arguments.size());
  made.seed = seed;
  for (uint32_t i = 0; i < program.arguments.size(); ++i)
    if (program.arguments[i].role != AirRole::dead && program.arguments[i].role != AirRole::length)
      made.patches.push_back({i, 0, linear_descriptor(program.arguments[i].bytes())});
  return made;
}

// An xclbin as aiecc has xclbinutil make it: one kernel, its buffers in the host's memory.
struct MadeXclbin {
  std::string kernel = "MLIR_AIE:MLIRAIE";
  uint16_t columns = 8;
  uint32_t buffers = 9;  // arguments from 3 on
  uint32_t bank = 0;     // that they are connected to
  uint32_t design_bytes = 1000;
  uint32_t seed = 0;
};

inline std::string xclbin_file(const MadeXclbin& made) {
  const auto padded = [](std::string text, size_t size) {
    text.resize(size);
    return text;
  };
  std::string topology, kernels, connections, partition;
  put(topology, uint64_t{2});
  for (const char* tag : {"HOST", "SRAM"}) topology += std::string(24, '\0') + padded(tag, 16);
  put(kernels, uint64_t{1});
  kernels += std::string(16, '\0') + padded(made.kernel, 64);
  put(connections, made.buffers + 1);
  for (uint32_t i = 0; i <= made.buffers; ++i)
    for (const uint32_t field : {i == 0 ? 1 : i + 2, 0u, i == 0 ? 1 : made.bank})
      put(connections, field);
  partition.resize(32);
  put(partition, made.columns);
  partition.resize(120);
  for (const uint32_t field : {1u, 128u}) put(partition, field);  // one PDI, described at 128
  partition.resize(128 + 16);
  for (const uint32_t field : {made.design_bytes, 224u}) put(partition, field);
  partition.resize(224 + made.design_bytes, static_cast<char>('p' + made.seed % 8));
  put(partition, made.seed);

  const std::pair<uint32_t, std::string*> sections[] = {
      {6, &topology}, {32, &partition}, {8, &kernels}, {7, &connections}};
  std::string out = padded(std::string("xclbin2\0", 8), 448);
  put(out, static_cast<uint64_t>(std::size(sections)));
  std::string bodies;
  for (const auto& [kind, body] : sections) {
    put(out, uint64_t{kind});
    out.append(16, '\0');
    put(out, static_cast<uint64_t>(456 + std::size(sections) * 40 + bodies.size()));
    put(out, static_cast<uint64_t>(body->size()));
    bodies += *body;
  }
  out += bodies;
  const uint64_t length = out.size();
  std::memcpy(&out[304], &length, sizeof(length));
  return out;
}

// A stream of operations, with its header filled in at the end.
class StreamWriter {
 public:
  explicit StreamWriter(uint32_t generation = 4, uint32_t columns = 8)
      : header_{6u << 24 | generation << 16 | 1u << 8, 1u << 8 | columns} {}
  void write(uint32_t address, uint32_t value) { add({0, 0, address, 0, value, 6 * 4}); }
  void sync() { add({128, 4 * 4, 0, 0}); }
  // The descriptor's words, and the patch of its address.
  void move(uint32_t argument, uint32_t offset, const DmaDescriptor& descriptor) {
    constexpr uint32_t kAddress = 0x1d040;
    std::vector<uint32_t> block = {1, 0, kAddress, (4 + kDescriptorWords) * 4};
    block.insert(block.end(), descriptor.begin(), descriptor.end());
    add(block);
    patch(kAddress + 4, argument, offset);
  }
  void patch(uint32_t address, uint32_t argument, uint32_t offset) {
    add({129, 12 * 4, 0, 0, 0, 0, address, 0, argument, 0, offset, 0});
  }
  std::vector<uint32_t> words() const {
    std::vector<uint32_t> words = {header_[0], header_[1], operations_,
                                   static_cast<uint32_t>((words_.size() + 4) * 4)};
    words.insert(words.end(), words_.begin(), words_.end());
    return words;
  }
  std::string file() const {
    const std::vector<uint32_t> all = words();
    return {reinterpret_cast<const char*>(all.data()), all.size() * 4};
  }

 private:
  void add(const std::vector<uint32_t>& operation) {
    words_.insert(words_.end(), operation.begin(), operation.end());
    ++operations_;
  }
  uint32_t header_[2];
  std::vector<uint32_t> words_;
  uint32_t operations_ = 0;
};

// The stream of a fused decode at a length: all of every buffer, the length for a core, and where a
// new position goes, `position_bytes` after the one before. As mlir-aie writes it since July 2026,
// the array's view of memory is added from the sixth buffer on (`is_folded`).
inline StreamWriter decode_stream(const AirProgram& program, uint32_t length,
                                  uint32_t position_bytes = 512, bool is_folded = true) {
  constexpr uint32_t kFirst = 3, kCoreWord = 0x0020'0400;
  StreamWriter stream;
  for (uint32_t i = 0; i + kFirst < program.arguments.size(); ++i)
    stream.move(i, is_folded && i >= 5 ? 0x8000'0000 : 0,
                linear_descriptor(program.arguments[i + kFirst].bytes()));
  stream.write(kCoreWord, length);
  stream.move(4, (length - 1) * position_bytes, linear_descriptor(position_bytes));
  stream.sync();
  return stream;
}

}  // namespace tyto::test

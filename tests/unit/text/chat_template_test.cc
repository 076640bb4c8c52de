#include "text/chat_template.h"

#include "support/expect_error.h"
#include "unit/text/template_rendering.h"

namespace tyto {
namespace {

using namespace std::string_literals;

const std::vector<ChatMessage> kConversation = {
    {"system", "Be brief."}, {"user", " Hi "}, {"assistant", "Hello."}, {"user", "Bye"}};

std::string named(std::string_view name, const std::vector<ChatMessage>& messages,
                  bool generation = true) {
  for (const NamedTemplate& each : named_chat_templates()) {
    if (each.name != name) continue;
    ChatOptions options;
    options.add_generation_prompt = generation;
    options.bos_token = "<s>";
    options.eos_token = "</s>";
    return ChatTemplate(each.source, std::string(name)).render(messages, options);
  }
  ADD_FAILURE() << "no template " << name;
  return "";
}

TEST(NamedTemplate, ChatmlMarksEveryTurn) {
  EXPECT_EQ(named("chatml", kConversation),
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n Hi <|im_end|>\n"
            "<|im_start|>assistant\nHello.<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n"
            "<|im_start|>assistant\n");
  EXPECT_EQ(named("chatml", {{"user", "x"}}, false), "<|im_start|>user\nx<|im_end|>\n");
}

TEST(NamedTemplate, QwenAddsItsSystemMessage) {
  EXPECT_EQ(named("qwen", {{"user", "x"}}, false),
            "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
            "<|im_start|>user\nx<|im_end|>\n");
  EXPECT_EQ(named("qwen", kConversation), named("chatml", kConversation));
}

TEST(NamedTemplate, Llama2PutsTheSystemMessageIntoTheFirstTurn) {
  EXPECT_EQ(named("llama2", kConversation),
            "<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\n Hi [/INST] Hello. </s>"
            "<s>[INST] Bye [/INST]");
}

TEST(NamedTemplate, Llama3WritesHeaders) {
  EXPECT_EQ(named("llama3", kConversation),
            "<s><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\nHello.<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nBye<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n");
}

TEST(NamedTemplate, ZephyrWritesRoleLines) {
  EXPECT_EQ(named("zephyr", kConversation),
            "<|system|>\nBe brief.</s>\n<|user|>\n Hi </s>\n<|assistant|>\nHello.</s>\n"
            "<|user|>\nBye</s>\n<|assistant|>\n");
}

TEST(NamedTemplate, MistralPutsTheSystemMessageBeforeTheUser) {
  EXPECT_EQ(named("mistral", kConversation),
            "<s>[INST] Be brief.\n\n Hi  [/INST] Hello.</s>[INST] Bye [/INST]");
}

TEST(NamedTemplate, Phi3WritesRoleTags) {
  EXPECT_EQ(named("phi3", kConversation),
            "<|system|>\nBe brief.<|end|>\n<|user|>\n Hi <|end|>\n<|assistant|>\nHello.<|end|>\n"
            "<|user|>\nBye<|end|>\n<|assistant|>\n");
}

TEST(NamedTemplate, AllParseAndRenderNothingForNothing) {
  EXPECT_GE(named_chat_templates().size(), 7u);
  for (const NamedTemplate& each : named_chat_templates()) {
    SCOPED_TRACE(each.name);
    EXPECT_NO_THROW(named(each.name, {}, false));
  }
}

TEST(NamedTemplate, UnknownRolesAreRefused) {
  EXPECT_ERROR(named("llama2", {{"tool", "x"}}), "llama2 has no role tool");
  EXPECT_ERROR(named("mistral", {{"tool", "x"}}), "mistral has no role tool");
}

TEST(ChatTemplate, VariablesAreTransformersOnes) {
  ChatOptions options;
  options.add_generation_prompt = false;
  options.bos_token = "<b>";
  options.flags = {{"enable_thinking", false}};
  EXPECT_EQ(rendered("{{ messages }}{{ add_generation_prompt }}{{ bos_token }}[{{ eos_token }}]"
                     "{{ enable_thinking is false }}{{ tools }}{{ documents is none }}"
                     "{{ other is defined }}",
                     {{"user", "it's"}}, options),
            "[{'role': 'user', 'content': \"it's\"}]False<b>[]TrueNoneTrueFalse");
}

TEST(ChatTemplate, DateAnswersStrftimeNow) {
  ChatOptions options;
  options.date = "2024-02-29";
  EXPECT_EQ(
      rendered("{{ strftime_now('%d %b %Y, %A %B %-d %j %y %m %H:%M:%S.%f %%') }}", {}, options),
      "29 Feb 2024, Thursday February 29 060 24 02 00:00:00.000000 %");
  EXPECT_EQ(rendered("{{ strftime_now('%Y')|length }}"), "4");
  for (const char* bad :
       {"2023-02-29", "2024-13-01", "2024-1-1", "today", "2024-02-2x", "0000-00-00"}) {
    SCOPED_TRACE(bad);
    options.date = bad;
    EXPECT_ERROR(rendered("x", {}, options), "is not a date like 2025-01-31");
  }
}

TEST(ChatTemplate, RefusalIsOneLineWithNameAndLine) {
  try {
    ChatTemplate("\n\n{{ raise_exception('roles must\nalternate') }}", "llama3")
        .render(kConversation, {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "chat template llama3: line 3: the template says: roles must alternate");
    EXPECT_EQ(error.code, ErrorCode::input);
  }
}

// Message texts are data: nothing in them is ever a tag, and no byte of them is changed.
TEST(ChatTemplate, ContentIsNeverInterpreted) {
  const std::string content = "{{ 1 + 1 }}{% raw %}\xFF\xC3(\0<&>\r\n"s;
  EXPECT_EQ(rendered("[{{ messages[0].content }}]", {{"user", content}}), "[" + content + "]");
  EXPECT_EQ(rendered("[{{ messages[0]['content'] | trim }}]", {{"user", " \xC3 \xFF\n"}}),
            "[\xC3 \xFF]");
}

TEST(ChatTemplate, OneTemplateRendersManyTimes) {
  const ChatTemplate once(
      "{% set ns = namespace(n=0) %}{% for m in messages %}"
      "{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
      "count");
  EXPECT_EQ(once.render(kConversation, {}), "4");
  EXPECT_EQ(once.render({}, {}), "0");
  EXPECT_EQ(once.render(kConversation, {}), "4");
}

// The shapes of real templates: default system text, think blocks, alternation checks.
// Those that do not know the role get a system message.
TEST(ChatTemplate, DevelopersAreForThoseWhoKnowThem) {
  const std::string roles = "{% for m in messages %}{{ m.role }} {% endfor %}";
  const std::vector<ChatMessage> messages = {{"developer", "x"}, {"user", "developer"}};
  EXPECT_EQ(rendered(roles, messages), "system user ");
  EXPECT_EQ(rendered(roles + "written by a developer", messages).substr(0, 12), "system user ");
  for (const char* name : {"'developer'", "\"developer\""})
    EXPECT_EQ(rendered(std::string("{% set known = ") + name + " %}" + roles, messages),
              "developer user ");
}

TEST(ChatTemplate, RealShapes) {
  const char* thinking =
      "{%- for message in messages %}\n"
      "    {%- if message.role == \"assistant\" %}\n"
      "        {%- set content = message.content %}\n"
      "        {%- if '</think>' in content %}\n"
      "            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}\n"
      "        {%- endif %}\n"
      "        {{- '<|' + message.role + '|>' + content + '\\n' }}\n"
      "    {%- else %}\n"
      "        {{- '<|' ~ message['role'] ~ '|>' ~ message['content'] ~ '\\n' }}\n"
      "    {%- endif %}\n"
      "{%- endfor %}\n"
      "{%- if add_generation_prompt %}\n"
      "    {{- '<|assistant|>' }}\n"
      "    {%- if enable_thinking is defined and enable_thinking is false %}\n"
      "        {{- '<think>\\n\\n</think>\\n\\n' }}\n"
      "    {%- endif %}\n"
      "{%- endif %}";
  ChatOptions options;
  options.flags = {{"enable_thinking", false}};
  EXPECT_EQ(
      rendered(thinking, {{"user", "q"}, {"assistant", "<think>\nx\n</think>\n\na"}}, options),
      "<|user|>q\n<|assistant|>a\n<|assistant|><think>\n\n</think>\n\n");

  const char* alternating =
      "{{ bos_token }}{% for message in messages %}"
      "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
      "{{ raise_exception('roles must alternate') }}{% endif %}"
      "{{ '[' + message['content'] + ']' }}{% endfor %}";
  EXPECT_EQ(rendered(alternating, {{"user", "a"}, {"assistant", "b"}}), "[a][b]");
  EXPECT_EQ(complaint(alternating, {{"user", "a"}, {"user", "b"}}),
            "line 1: the template says: roles must alternate");
}

}  // namespace
}  // namespace tyto

#include "text/chat_template.h"

namespace tyto {
namespace {

// {% generation %} marks, default texts and tool sections are left out: these are the prompt
// formats alone, for files that carry no template.

constexpr std::string_view kChatml = R"({%- for message in messages -%}
{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<|im_start|>assistant\n' }}
{%- endif -%}
)";

constexpr std::string_view kQwen = R"({%- if not messages or messages[0].role != 'system' -%}
{{ '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n' }}
{%- endif -%}
{%- for message in messages -%}
{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<|im_start|>assistant\n' }}
{%- endif -%}
)";

// The system text goes inside of the first instruction.
constexpr std::string_view kLlama2 = R"({%- set ns = namespace(system='') -%}
{%- for message in messages -%}
  {%- if message.role == 'system' -%}
    {%- set ns.system = '<<SYS>>\n' + message.content + '\n<</SYS>>\n\n' -%}
  {%- elif message.role == 'user' -%}
    {{ bos_token + '[INST] ' + (ns.system + message.content).strip() + ' [/INST]' }}
    {%- set ns.system = '' -%}
  {%- elif message.role == 'assistant' -%}
    {{ ' ' + message.content.strip() + ' ' + eos_token }}
  {%- else -%}
    {{ raise_exception('llama2 has no role ' + message.role) }}
  {%- endif -%}
{%- endfor -%}
)";

constexpr std::string_view kLlama3 = R"({{- bos_token -}}
{%- for message in messages -%}
{{ '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' + message.content | trim + '<|eot_id|>' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif -%}
)";

constexpr std::string_view kZephyr = R"({%- for message in messages -%}
{{ '<|' + message.role + '|>\n' + message.content + eos_token + '\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<|assistant|>\n' }}
{%- endif -%}
)";

constexpr std::string_view kMistral = R"({{- bos_token -}}
{%- set ns = namespace(system='') -%}
{%- for message in messages -%}
  {%- if message.role == 'system' -%}
    {%- set ns.system = message.content + '\n\n' -%}
  {%- elif message.role == 'user' -%}
    {{ '[INST] ' + ns.system + message.content + ' [/INST]' }}
    {%- set ns.system = '' -%}
  {%- elif message.role == 'assistant' -%}
    {{ ' ' + message.content.strip() + eos_token }}
  {%- else -%}
    {{ raise_exception('mistral has no role ' + message.role) }}
  {%- endif -%}
{%- endfor -%}
)";

constexpr std::string_view kPhi3 = R"({%- for message in messages -%}
{{ '<|' + message.role + '|>\n' + message.content + '<|end|>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<|assistant|>\n' }}
{%- endif -%}
)";

}  // namespace

const std::vector<NamedTemplate>& named_chat_templates() {
  static const std::vector<NamedTemplate> kTemplates = {
      {"chatml", kChatml}, {"llama2", kLlama2}, {"llama3", kLlama3}, {"mistral", kMistral},
      {"phi3", kPhi3},     {"qwen", kQwen},     {"zephyr", kZephyr},
  };
  return kTemplates;
}

}  // namespace tyto

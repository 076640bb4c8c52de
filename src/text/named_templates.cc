#include "text/chat_template.h"

namespace tyto {
namespace {

// {% generation %} marks and default texts are left out: these are the prompt formats alone, for
// files that carry no template. Calls and tools are in those whose families were trained on them,
// in the words of that training.

// Tools as Hermes and Qwen have them.
constexpr std::string_view kChatml =
    R"({%- set has_system = messages and messages[0].role == 'system' -%}
{%- set system = messages[0].content if has_system else default_system | default('') -%}
{%- if system or tools or has_system -%}
  {{ '<|im_start|>system\n' + system }}
  {%- if tools -%}
    {{ ('\n\n' if system else '') + '# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are provided with function signatures within <tools></tools> XML tags:\n<tools>' }}
    {%- for tool in tools -%}
      {{ '\n' + (tool | tojson) }}
    {%- endfor -%}
    {{ '\n</tools>\n\nFor each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>' }}
  {%- endif -%}
  {{ '<|im_end|>\n' }}
{%- endif -%}
{%- for message in (messages[1:] if has_system else messages) -%}
  {%- if message.role == 'tool' -%}
    {%- if loop.first or loop.previtem.role != 'tool' -%}
      {{ '<|im_start|>user' }}
    {%- endif -%}
    {{ '\n<tool_response>\n' + message.content + '\n</tool_response>' }}
    {%- if loop.last or loop.nextitem.role != 'tool' -%}
      {{ '<|im_end|>\n' }}
    {%- endif -%}
  {%- else -%}
    {{ '<|im_start|>' + message.role }}
    {%- if message.content or not message.tool_calls -%}
      {{ '\n' + message.content }}
    {%- endif -%}
    {%- for call in message.tool_calls or [] -%}
      {{ '\n<tool_call>\n{"name": "' + call.function.name + '", "arguments": ' + (call.function.arguments | tojson) + '}\n</tool_call>' }}
    {%- endfor -%}
    {{ '<|im_end|>\n' }}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<|im_start|>assistant\n' }}
{%- endif -%}
)";

constexpr std::string_view kQwenDefault =
    "{%- set default_system = 'You are a helpful assistant.' -%}";

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

// Tools stand in the first message of the user, results come from "ipython", as in Llama 3.1 and
// later ones.
constexpr std::string_view kLlama3 = R"({{- bos_token -}}
{%- set ns = namespace(tools=tools) -%}
{%- if tools and (not messages or messages[0].role != 'system') -%}
  {{ '<|start_header_id|>system<|end_header_id|>\n\nEnvironment: ipython<|eot_id|>' }}
{%- endif -%}
{%- for message in messages -%}
  {%- set role = 'ipython' if message.role == 'tool' else message.role -%}
  {{ '<|start_header_id|>' + role + '<|end_header_id|>\n\n' }}
  {%- if role == 'system' and ns.tools -%}
    {{ 'Environment: ipython\n\n' }}
  {%- elif role == 'user' and ns.tools -%}
    {{ 'Given the following functions, please respond with a JSON for a function call with its proper arguments that best answers the given prompt.\n\nRespond in the format {"name": function name, "parameters": dictionary of argument name and its value}.Do not use variables.\n\n' }}
    {%- for tool in ns.tools -%}
      {{ (tool | tojson(indent=4)) + '\n\n' }}
    {%- endfor -%}
    {%- set ns.tools = none -%}
  {%- endif -%}
  {%- if message.tool_calls -%}
    {%- for call in message.tool_calls -%}
      {{ ('' if loop.first else '; ') + '{"name": "' + call.function.name + '", "parameters": ' + (call.function.arguments | tojson) + '}' }}
    {%- endfor -%}
  {%- elif role == 'ipython' -%}
    {{ message.content | tojson }}
  {%- else -%}
    {{ message.content | trim }}
  {%- endif -%}
  {{ '<|eot_id|>' }}
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
  static const std::string kQwen = std::string(kQwenDefault).append(kChatml);
  static const std::vector<NamedTemplate> kTemplates = {
      {"chatml", kChatml}, {"llama2", kLlama2}, {"llama3", kLlama3}, {"mistral", kMistral},
      {"phi3", kPhi3},     {"qwen", kQwen},     {"zephyr", kZephyr},
  };
  return kTemplates;
}

}  // namespace tyto

"""Writes chat.golden.json: conversations rendered by transformers 5.24.0 with the templates in chat/.

    python testdata/chat.py

smollm2.jinja is the default model's own template. The others are written in the manner of the models that they are
named after and use the same constructs; whitespace.jinja and language.jinja walk through Jinja's rules.
"""

import datetime
import json
import os

from transformers.utils.chat_template_utils import _compile_jinja_template

HERE = os.path.dirname(os.path.abspath(__file__))
NOW = datetime.datetime(2026, 3, 7, 9, 5, 2)
SPECIAL = {"bos_token": "<|begin_of_text|>", "eos_token": "<|im_end|>"}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "It's <b>\"weather\"</b> & more – für 東京", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer", "default": 3, "maximum": 1.5}},
    "required": ["city"], "additionalProperties": False}}}, {"type": "function", "function": {"name": "noop", "parameters": {}, "x": None}}]
CALL = {"type": "function", "function": {"name": "get_weather", "arguments": {"city": "Zürich <&>", "days": 2}}}


def message(role, content, **fields):
    return {"role": role, "content": content, **fields}


HELLO = [message("user", "Hello!")]
TURNS = [message("system", "Be brief."), message("user", "What is 1+1?"), message("assistant", "2"), message("user", "And \u00bd + \u00bd?")]
ODD = [message("user", "  leading, trailing \n\n"), message("assistant", ""), message("user", "{{ 7*7 }} {% raw %} <|im_end|>\t\x00 \\n \"q\" 'a' &lt; 👩‍🚀 e\u0301\r\n")]
THINK = [message("user", "Why?"), message("assistant", "<think>\nhm\n</think>\n\nBecause."), message("user", "Really?"),
         message("assistant", "Yes.", reasoning_content="\nI am sure.\n"), message("user", "")]
USE = [message("user", "Weather?"), message("assistant", "", tool_calls=[CALL]), message("tool", "{\"t\": 21}"), message("tool", "more"),
       message("assistant", "21°"), message("user", "Thanks")]
BAD = [message("user", "a"), message("user", "b")]
CASES = [("none", [], {}), ("hello", HELLO, {}), ("hello, prompt", HELLO, {"add_generation_prompt": True}), ("turns", TURNS, {"add_generation_prompt": True}),
         ("turns, no prompt", TURNS, {}), ("odd", ODD, {"add_generation_prompt": True}), ("think", THINK, {"add_generation_prompt": True}),
         ("no thinking", THINK, {"add_generation_prompt": True, "enable_thinking": False}), ("bad roles", BAD, {}),
         ("tools", HELLO, {"tools": TOOLS, "add_generation_prompt": True}), ("tools, system", TURNS, {"tools": TOOLS}),
         ("tool use", USE, {"tools": TOOLS, "add_generation_prompt": True})]


def main():
    out = []
    for name in sorted(os.listdir(os.path.join(HERE, "chat"))):
        with open(os.path.join(HERE, "chat", name), newline="") as f:
            template = _compile_jinja_template(f.read())
        for case, messages, options in CASES:
            entry = {"template": name, "case": case, "messages": messages, **options}
            try:
                entry["want"] = template.render(messages=messages, documents=None, strftime_now=NOW.strftime, **SPECIAL,
                                                **({"tools": None, "add_generation_prompt": False} | options))
            except Exception as e:  # raise_exception, and what Jinja refuses
                if "has no element" in str(e):  # see ApplyChat: undefined values are lenient there
                    continue
                entry["error"] = str(e)
            out.append(entry)
    with open(os.path.join(HERE, "chat.golden.json"), "w") as f:
        json.dump(out, f, indent=0, ensure_ascii=True)
        f.write("\n")
    print(len(out), "renderings,", sum("error" in e for e in out), "errors")


main()

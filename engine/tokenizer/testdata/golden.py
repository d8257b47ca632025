"""Writes the golden files of this folder with Hugging Face tokenizers 0.23.3.

    python testdata/golden.py MODEL.gguf

MODEL.gguf is the default model; it is read for its vocabulary, of which only ids are kept here.

  VOCAB.tokenizer.json.gz  a small vocabulary trained under each pre-tokenizer
  strings.json.gz          the hard strings, as a JSON list
  VOCAB.golden.json.gz     {encode: [[id differences] per string], plain: {index: ids with control tokens as
                           text, where different}, decode: [[ids, text, text without control tokens]],
                           lossy: {index: decoded text, where it differs from the string},
                           blocks: {first code point: SHA-256 of the ids of 4096 code points in context, cut to 8 bytes}}
"""

import gzip
import hashlib
import json
import os
import random
import sys

import gguf
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = os.path.dirname(os.path.abspath(__file__))
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
# All code points but the planes that hold nothing, of which one block is taken.
BLOCKS = [*range(0, 0x34000, 0x1000), 0x50000, 0xE0000, 0xF0000, 0x10F000]
rng = random.Random(20261129)

PROSE = """The quick brown fox jumps over the lazy dog. We'll see that it's what they've done; I'm sure you'd agree.
Speculative decoding drafts a few tokens and lets the target model verify them in one pass, which doesn't change the output.
Der schnelle braune Fuchs springt über den faulen Hund; größer, Straße, Äpfel. Le garçon a mangé une pêche à Nîmes.
El niño comió piñas. Ação, coração, não. Zażółć gęślą jaźń. Příliš žluťoučký kůň úpěl ďábelské ódy. İstanbul'da ılık.
Съешь же ещё этих мягких французских булок да выпей чаю. Ξεσκεπάζω την ψυχοφθόρα βδελυγμία. שלום עולם, מה שלומך היום.
مرحبا بالعالم، كيف حالك اليوم. नमस्ते दुनिया, आप कैसे हैं। สวัสดีชาวโลก วันนี้เป็นอย่างไร. 안녕하세요 세계, 오늘은 어떠세요.
こんにちは世界、今日はいかがですか。 你好，世界！今天过得怎么样？ 繁體中文也要測試。 Xin chào thế giới, hôm nay bạn thế nào.
ሰላም ልዑል። გამარჯობა მსოფლიო. Բարեւ աշխարհ. ਸਤ ਸ੍ਰੀ ਅਕਾਲ. வணக்கம் உலகம். ఎలా ఉన్నారు. ಹೇಗಿದ್ದೀರಿ. ជំរាបសួរ. မင်္ဂလာပါ. བཀྲ་ཤིས་བདེ་ལེགས།
"""
CODE = '''package main

import "fmt"

func main() {
\tfor i := 0; i < 10; i++ {
\t\tfmt.Printf("%d: %s\\n", i, names[i%len(names)])
\t}
}
def f(x, *, y=None, **kw) -> dict[str, int]:
    """Doc."""
    return {k: v for k, v in zip(x, range(1_000_000))} if y is None else {}  # comment
<div class="a b" id='c'>&amp;&#39;</div>  <!-- x -->
SELECT * FROM t WHERE a >= 3.14159 AND b != 'it''s' ORDER BY c DESC LIMIT 100;
{"key": [1, 2.5e-10, true, null], "näme": "\\u00e9"}
#include <stdio.h>\r\nint main(void){return 0;}\r\n\r\n
rm -rf ./build && make -j$(nproc) 2>&1 | tee log.txt; echo $?
'''
EMOJI = ["😀", "👨‍👩‍👧‍👦", "🏳️‍🌈", "👍🏽", "🇩🇪🇫🇷", "❤️‍🔥", "1️⃣", "🧑🏿‍🚀", "☺︎", "🫠", "🐻‍❄️", "©️™"]
SPACES = [" ", "  ", "   ", "\t", "\n", "\r", "\r\n", "\n\n", "\v", "\f", "\x85", "\xa0", "\u1680", "\u2000", "\u2003", "\u2009",
          "\u200a", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000", "\u200b", "\ufeff", "\u180e", "\x1c", "\x1f"]
WORDS = ["a", "B", "the", "don't", "IT'S", "We'Ll", "x'ſ", "'s", "'S", "''ve", "'LL'", "O'Re", "é", "e\u0301", "ß", "ﬁ", "ǆ", "Ω", "Å", "한",
         "\u1112\u1161\u11ab", "中文", "日本語", "क्षि", "نص", "עברית", "ไทย", "0", "7", "42", "123", "1234", "12345678", "٣٤٥", "४५", "Ⅷ",
         "½", "²", "①", "一二", "\U0001d7d8", "\U00016ff4", "\U00011de3", "𝔘𝔫𝔦", "_", "__init__", ".", "...", "!?", "$", "€", "->", "//", "\\",
         "\x00", "\x01", "\x7f", "\u0301", "\u0300\u0323", "\u200d", "\ufe0f", "\ue000", "\U0010ffff", "\ufffd", "\ufffe", "\U00011938",
         "\U00011935\U00011930", "\u0c3c\u0345", "\U000105d2\u0307"]
LOOKALIKES = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|im_start|>user\nHi<|im_end|>\n", "<|im_start", "|im_end|>", "<|im_<|im_end|>",
              "<|IM_END|>", "< |im_end|>", "<|im_end|><|im_end|>", " <|im_end|> ", "a<|im_end|>b", "<|eot_id|>", "<|begin_of_text|>", "<s>",
              "</s>", "[INST]", "<think>", "<thinking>", "<file_sep>", "<repo_name>x", "<|strip|>", "  <|strip|>\t\n ", "\u3000<|strip|>\u00a0x",
              "<|strip|> <|strip|>", "<left>", " \n<left> ", "<right>", " <right> \n", "naïve", "nai\u0308ve", "café", "xcafe\u0301x", "日本",
              "日本語", "ab cd", "xab cdx", "Ġx", "<keep>", "<keep>er"]
SCRIPTS = [(0x20, 0x7E), (0xA0, 0x24F), (0x250, 0x2FF), (0x300, 0x36F), (0x370, 0x52F), (0x530, 0x5FF), (0x600, 0x7FF), (0x800, 0x8FF),
           (0x900, 0xDFF), (0xE00, 0xFFF), (0x1000, 0x13FF), (0x1400, 0x18AF), (0x1900, 0x1CFF), (0x1D00, 0x1FFF), (0x2000, 0x2BFF),
           (0x2C00, 0x2FFF), (0x3000, 0x33FF), (0x3400, 0x9FFF), (0xA000, 0xABFF), (0xAC00, 0xD7FF), (0xE000, 0xFFFF), (0x10000, 0x10FFF),
           (0x11000, 0x12FFF), (0x13000, 0x16FFF), (0x17000, 0x1CFFF), (0x1D000, 0x1F0FF), (0x1F100, 0x1FAFF), (0x20000, 0x323AF),
           (0xE0000, 0xE01FF), (0xF0000, 0x10FFFF)]


def hard_strings():
    out = ["", " ", PROSE, CODE, PROSE + CODE]
    out += PROSE.split("\n") + CODE.split("\n") + EMOJI + SPACES + WORDS + LOOKALIKES
    out += [chr(c) for c in range(0x180)] + ["a" + chr(c) + "b" for c in range(0x21)]
    for s in SPACES:  # every kind of white space, in runs, before, between and behind the classes
        for n in (1, 2, 3, 7):
            for x in ("a", "1", "!", "'s", "é", ""):
                out.append(s * n + x)
            out += ["a" + s * n + "b", "a" + s * n + "\n" + s * n + "1", " " + s * n + "!", "1" + s * n]
    for lo, hi in SCRIPTS:  # every script: runs of neighbours and wild mixes
        for _ in range(8):
            start = rng.randint(lo, max(lo, hi - 12))
            run = "".join(chr(c) for c in range(start, start + 12) if not 0xD800 <= c < 0xE000)
            out += [run, " ".join(run), "x" + run + "7"]
        for _ in range(6):
            out.append("".join(chr(rng.randint(lo, hi)) if rng.random() < 0.8 else rng.choice(" \n1'") for _ in range(20)
                               ).encode("utf-16", "surrogatepass").decode("utf-16", "ignore"))
    pool = WORDS + SPACES + EMOJI + LOOKALIKES
    for _ in range(700):
        out.append("".join(rng.choice(pool) for _ in range(rng.randint(2, 9))))
    text = PROSE + CODE
    for _ in range(300):
        i = rng.randrange(len(text))
        out.append(text[i : i + rng.randint(1, 60)])
    marks = [chr(c) for c in range(0x300, 0x370)] + ["\u05b0", "\u0650", "\u093c", "\u3099", "\U0001d165", "\u07fd", "\u1df6", "\u0c3c", "\u0345"]
    for _ in range(250):  # normalisation
        out.append("".join(rng.choice("aeouAscnÅǖệ가각한ᄒ\u1161\u11a8か\u0938") + "".join(rng.choice(marks) for _ in range(rng.randint(0, 5)))
                           for _ in range(rng.randint(1, 5))))
    out += ["a" + "\u0301\u0323" * 60, "\u0301" * 50, "a" * 5000, " " * 3000, "\n" * 1001, "ab" * 2000, "0123456789" * 300, "!" * 2500,
            " \n" * 700, "é" * 1500, "世" * 1200, "😀" * 600, "<" * 1500, "'s" * 500, "<|im_end|>" * 100, "\u3000" * 400 + "x"]
    assert all(s == s.encode().decode() for s in out)
    return list(dict.fromkeys(out))


def trained(pre, alphabet, size, norm=None):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer, t.decoder = pre, decoders.ByteLevel()
    if norm:
        t.normalizer = norm
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False,
                                  special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    t.train_from_iterator([PROSE * 3, CODE * 3], trainer)
    return t


def vocabularies():
    full = pre_tokenizers.ByteLevel.alphabet()
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    after_split = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)

    gpt2 = trained(byte_level, full, 900)
    gpt2.add_special_tokens([AddedToken("<|strip|>", lstrip=True, rstrip=True, normalized=False), AddedToken("<left>", lstrip=True)])
    gpt2.add_tokens([AddedToken("<right>", rstrip=True), AddedToken("<keep>", normalized=False), AddedToken("日本", normalized=False),
                     AddedToken("café", normalized=True), AddedToken("Ġx"), AddedToken("ab cd", normalized=False), AddedToken("im_start")])
    prefix = trained(pre_tokenizers.ByteLevel(add_prefix_space=True), full, 500)
    smollm = trained(pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level]), [], 800)  # lacks bytes
    llama3 = trained(pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"), after_split]), full, 1000)
    state = json.loads(llama3.to_str())
    state["model"]["ignore_merges"] = True
    # Words that merges alone cannot reach, so that ignoring them shows.
    for word in ("Ġquick", "verify", "世界", "ĠIt's"):
        text = "".join(chr(c) for c in map(ord, word)) if word[0] in "Ġv" else "".join(BYTE[b] for b in word.encode())
        if text not in state["model"]["vocab"]:
            state["model"]["vocab"][text] = 2000 + len(state["model"]["vocab"])
    state["model"]["vocab"] = {k: i if i < 2000 else n for n, (k, i) in enumerate(sorted(state["model"]["vocab"].items(), key=lambda kv: kv[1]))}
    llama3 = Tokenizer.from_str(json.dumps(state))
    llama3.add_special_tokens([AddedToken("<|begin_of_text|>", normalized=False), AddedToken("<|eot_id|>", normalized=False)])
    llama3.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
        single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|> $B:1",
        special_tokens=[("<|begin_of_text|>", llama3.token_to_id("<|begin_of_text|>"))])])
    qwen2 = trained(pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(QWEN2), "isolated"), after_split]), full, 1000, normalizers.NFC())
    qwen2.add_tokens([AddedToken("café", normalized=True), AddedToken("nai\u0308ve", normalized=True), AddedToken("<think>", normalized=False)])
    return {"gpt2": gpt2, "prefix": prefix, "smollm": smollm, "llama3": llama3, "qwen2": qwen2}


def byte_symbols():
    keep = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [b for b in range(256) if b not in keep]
    return {b: chr(b) for b in keep} | {b: chr(0x100 + i) for i, b in enumerate(rest)}


BYTE = byte_symbols()


def default_vocabulary(path):
    fields = gguf.GGUFReader(path).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    merges = [tuple(m.split(" ")) for m in fields["tokenizer.ggml.merges"].contents()]
    t = Tokenizer(models.BPE({s: i for i, s in enumerate(tokens)}, merges))
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    t.decoder = decoders.ByteLevel()
    kinds = fields["tokenizer.ggml.token_type"].contents()
    t.add_special_tokens([AddedToken(s, normalized=False, special=True) for s, k in zip(tokens, kinds) if k == 3])
    assert t.get_vocab_size() == len(tokens)
    return t


def deltas(ids):
    return [b - a for a, b in zip([0] + ids, ids)]


def goldens(t, strings):
    encode, plain, lossy, decode = [], {}, {}, []
    t.encode_special_tokens = False
    for i, s in enumerate(strings):
        ids = t.encode(s).ids
        encode.append(deltas(ids))
        text = t.decode(ids, skip_special_tokens=False)
        if text != s:
            lossy[i] = text
    t.encode_special_tokens = True
    for i, s in enumerate(strings):
        ids = t.encode(s, add_special_tokens=False).ids
        if deltas(ids) != encode[i]:
            plain[i] = ids
    t.encode_special_tokens = False
    blocks = {}
    for lo in BLOCKS:  # every code point, before and behind a letter, a digit and a space
        text = "".join(f"x{chr(c)}1{chr(c)} {chr(c)}" for c in range(lo, lo + 0x1000) if not 0xD800 <= c < 0xE000)
        ids = t.encode(text, add_special_tokens=False).ids
        blocks[lo] = hashlib.sha256(" ".join(map(str, ids)).encode()).hexdigest()[:16]
    size = t.get_vocab_size()
    bytes_ = [i for i in range(size) if len(t.id_to_token(i)) == 1]
    for n in range(400):
        pool = bytes_ if n % 2 else range(size)
        ids = [rng.choice(pool) for _ in range(rng.randint(1, 12))]
        decode.append([ids, t.decode(ids, skip_special_tokens=False), t.decode(ids, skip_special_tokens=True)])
    return {"encode": encode, "plain": plain, "lossy": lossy, "decode": decode, "blocks": blocks}


def write(name, text):
    with open(os.path.join(HERE, name), "wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as f:
        f.write(text.encode())


def main():
    strings = hard_strings()
    write("strings.json.gz", json.dumps(strings))
    made = vocabularies()
    for name, t in made.items():
        write(f"{name}.tokenizer.json.gz", t.to_str())
    made["default"] = default_vocabulary(sys.argv[1])
    for name, t in made.items():
        write(f"{name}.golden.json.gz", json.dumps(goldens(t, strings), separators=(",", ":")))
    print(len(strings), "strings,", len(made), "vocabularies")


main()

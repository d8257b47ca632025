"""Scripts of conversations for the target to write.

A script is a row of integers that a decoding slot follows: token ids to be fed as they are, and the codes USER and
ANSWER, where the target writes until its end-of-turn token. Every script follows the target's own chat template after
the common prefix (the default system message and the opening of the first user turn). Three kinds:

    open     the target writes the user's turn from nothing (the idea of Magpie), then the answer
    seeded   the user's turn begins with an opening of ours ("Translate into French: "), and the target goes on
    given    the whole user's turn is ours: combined from parts, or a prompt of the training half of the prompt set
"""

import itertools
import json
import random
from dataclasses import dataclass

USER, ANSWER, END = -1, -2, -3

CATEGORIES = ("chat", "code", "mathematics", "summary", "question", "translation")


@dataclass
class Template:
    """A chat template cut at its holes, as token ids: prefix USER middle ANSWER again USER middle ANSWER …"""
    prefix: list
    middle: list
    again: list
    end: int

    @classmethod
    def of(cls, checkpoint):
        """Cuts the checkpoint's Jinja chat template. Raises ValueError when a turn does not end with the eos token."""
        from jinja2.sandbox import ImmutableSandboxedEnvironment
        env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        hole = "@@HOLE@@"
        turns = [{"role": r, "content": hole} for r in ("user", "assistant", "user")]
        text = env.from_string(checkpoint.chat_template).render(
            messages=turns, add_generation_prompt=True, bos_token="", eos_token="")
        prefix, middle, again, tail = text.split(hole)
        tok, end = checkpoint.tokenizer, checkpoint.shape.eos
        ids = lambda s: tok.encode(s, add_special_tokens=False).ids
        middle, again, tail = ids(middle), ids(again), ids(tail)
        if middle[0] != end or again[0] != end or tail != middle:
            raise ValueError("the chat template's turns do not end with the eos token; this package cannot cut it")
        return cls(ids(prefix), middle[1:], again[1:], end)


@dataclass
class Script:
    """One conversation to be written: codes after the template's prefix, and how its answer is sampled."""
    codes: list
    category: str
    temperature: float


def build(template, encode, count, seed, prompt_file=None, greedy=0.5):
    """Makes `count` scripts, deterministically from the seed; about `greedy` of them answer at temperature 0."""
    rng = random.Random(seed)
    given = _given(rng)
    own = load_prompts(prompt_file, "train") if prompt_file else []
    scripts = []
    for i in range(count):
        temperature = 0.0 if rng.random() < greedy else rng.choice((0.6, 0.8, 1.0))
        draw = rng.random()
        if draw < 0.40:
            category, turn = "chat", [USER]
        elif draw < 0.86:
            category = rng.choice(CATEGORIES)
            turn = encode(_opening(rng, category)) + [USER]
        elif draw < 0.98 or not own:
            category = rng.choice(CATEGORIES)
            turn = encode(next(given[category])) + [template.end]
        else:
            p = rng.choice(own)
            category, turn = p["category"], encode(p["text"]) + [template.end]
            temperature = temperature or rng.choice((0.0, 0.5, 0.8))
        codes = turn + template.middle + [ANSWER]
        if rng.random() < 0.12:
            codes += template.again + [USER] + template.middle + [ANSWER]
        scripts.append(Script(codes, category, temperature))
    return scripts


def load_prompts(path, split):
    """The prompts of one half ("train" or "heldout") of a prompt file, one JSON object a line."""
    with open(path) as f:
        prompts = [json.loads(line) for line in f if line.strip()]
    return [p for p in prompts if p["split"] == split]


def scripts_of(prompts, template, encode, temperature=0.0):
    """Scripts that answer the given prompts, one each."""
    return [Script(encode(p["text"]) + [template.end] + template.middle + [ANSWER], p["category"], temperature)
            for p in prompts]


_TOPICS = (
    "the history of tea", "how bridges stay up", "bees", "the moon landing", "learning to cook", "saving money",
    "a trip to Japan", "city gardens", "the Roman Empire", "sleep", "electric cars", "public libraries", "chess",
    "the water cycle", "volcanoes", "running a marathon", "houseplants", "the printing press", "jazz", "glaciers",
    "remote work", "time management", "healthy breakfasts", "dog training", "the solar system", "recycling",
    "the French Revolution", "job interviews", "photography", "renewable energy", "Shakespeare", "coral reefs",
    "small businesses", "moving house", "mindfulness", "antibiotics", "vaccines", "the stock market", "earthquakes",
    "black holes", "learning a language", "knitting", "coffee", "wolves", "ancient Egypt", "social media", "autumn",
    "artificial intelligence", "the Silk Road", "swimming", "bread", "climate change", "penguins", "poetry",
    "a difficult neighbour", "a wedding speech", "a school play", "the ocean floor", "cycling to work", "friendship",
    "how computers store numbers", "the human heart", "rainforests", "a late delivery", "board games", "museums")

_OPENINGS = {
    "chat": (
        "Can you help me", "I've been thinking about", "I feel", "What do you think about", "Tell me a story about",
        "Write an email", "Write a short poem about", "Give me advice on", "My friend", "I want to learn", "I need to",
        "Let's talk about", "Write a letter to", "How can I", "Could you suggest", "Recommend", "Plan a", "I'm planning",
        "Help me write", "Give me five ideas for", "Pretend you are", "Rewrite this sentence so that it sounds friendlier:",
        "Hi! ", "Hello, I", "What should I", "I recently", "Describe", "Brainstorm", "Write a product description for",
        "Write a dialogue between", "My boss", "I have a meeting", "Imagine", "Write a blog post about", "Make a list of"),
    "code": (
        "Write a Python function that", "Write a Python function to", "Write a program that", "How do I sort",
        "Write a JavaScript function that", "Write a SQL query that", "Explain what this code does:\n\n",
        "Fix the bug in this code:\n\n```python\n", "Write a C function that", "Write a Java method that",
        "Write a class in Python that", "Write a regular expression that", "Write a bash script that",
        "What is the difference between", "How do I read a file in", "Write unit tests for this function:\n\n```python\n",
        "Implement a", "Write a Go function that", "Refactor this code:\n\n```python\ndef ", "Write HTML for",
        "How can I use pandas to", "In Python, how do I", "Complete this function:\n\n```python\ndef ",
        "Write a Rust function that", "Add comments to this code:\n\n```", "Convert this Python code to JavaScript:\n\n"),
    "mathematics": (
        "Solve for x: ", "What is ", "A train", "If a", "Find the area of", "Calculate", "A store sells", "There are",
        "Find the derivative of", "Simplify the expression", "What is the probability", "John has", "A rectangle",
        "Prove that", "Convert", "Find the sum of", "The average of", "A recipe", "How many", "Maria bought", "Solve",
        "What percentage of", "Evaluate the integral", "Factor", "Find the next number in the sequence", "In a class of",
        "Explain step by step how to", "The price of", "A car travels", "Two numbers", "If 3", "Tom is"),
    "summary": (
        "Summarize the following text:\n\n", "Summarize this article in two sentences:\n\n",
        "Give me the main points of this passage:\n\n", "Write a short summary of the text below.\n\n",
        "Summarize:\n\n", "What is this paragraph about?\n\n", "TL;DR of the following:\n\n",
        "Summarize this email for me:\n\n", "Extract the key facts from this report:\n\n",
        "Condense the following into bullet points:\n\n", "Summarize the story below in one paragraph:\n\n",
        "Please provide a brief overview of the following article.\n\n", "Shorten this text:\n\n"),
    "question": (
        "What is", "Why do", "How does", "Who was", "When did", "Where is", "What causes", "Explain", "What are the",
        "Why is", "How did", "What happens when", "Which", "Is it true that", "What is the difference between",
        "How many", "Who invented", "Who wrote", "What does", "Define", "Name three", "What is the capital of",
        "How long does it take", "Can you explain", "What are some", "Why did", "Describe the process of"),
    "translation": tuple(
        f"{how}{joint}" for how, joint in itertools.product(
            ("Translate the following sentence into {}", "Translate into {}", "How do you say this in {}?",
             "Please translate this text to {}", "Translate from English to {}", "Give the {} translation of"),
            (": ", ":\n\n", ": \"")))}

_LANGUAGES = ("French", "Spanish", "German", "Italian", "Portuguese", "French", "Spanish", "Dutch", "English")


def _opening(rng, category):
    text = rng.choice(_OPENINGS[category])
    if "{}" in text:
        text = text.format(rng.choice(_LANGUAGES))
    elif category == "summary" and rng.random() < 0.6:
        # A passage that starts from nothing is often an assistant's refusal to start: a topic keeps it a passage.
        topic = rng.choice(_TOPICS)
        text += rng.choice((f"{topic[0].upper()}{topic[1:]}", f"An essay on {topic}: ", "", "In recent years, ", "The "))
    elif category in ("chat", "question") and rng.random() < 0.2:
        text = f"{text.rstrip(' :')} {rng.choice(_TOPICS)}" if text[-1] not in ".!?:\"" else text
    return text.rstrip(" ")


def _shuffled(rng, items):
    """Cycles through items for ever, in a new order each time."""
    items = list(items)
    while True:
        rng.shuffle(items)
        yield from items


def _product(rng, *parts):
    return _shuffled(rng, (" ".join(p) for p in itertools.product(*parts)))


_ASKS = (
    "Write a short paragraph about {}.", "Explain {} to a ten-year-old.", "Give me three facts about {}.",
    "What should everyone know about {}?", "Write a poem about {}.", "Write a story of about 100 words on {}.",
    "Make a list of five tips on {}.", "Write an introduction to an essay about {}.",
    "What are the pros and cons of {}?", "Write a dialogue between two friends about {}.")

_WHYS = ("Why does it matter to know about", "What is interesting about", "How did people first learn about")

_PROGRAMMING = ("Python", "JavaScript", "C", "Go", "Java", "Python", "Rust", "TypeScript")

_TASKS = (
    "reverses a string", "checks whether a number is prime", "finds the largest element of a list",
    "counts the vowels in a string", "computes the factorial of n", "merges two sorted lists",
    "removes duplicates from a list", "checks whether a string is a palindrome", "computes Fibonacci numbers",
    "converts Celsius to Fahrenheit", "sorts a list of dictionaries by a key", "reads a CSV file and sums a column",
    "implements a stack", "does a binary search", "counts word frequencies in a text", "flattens a nested list",
    "validates an email address", "computes the greatest common divisor", "rotates a matrix by 90 degrees",
    "parses a date", "implements a queue with two stacks", "finds the second largest number",
    "computes the mean and median", "generates a random password", "implements bubble sort", "finds all anagrams")

_TAILS = (".", ", with comments.", " and explain how it works.", " and give an example of its use.")

_SENTENCES = (
    "Where is the nearest train station?", "I would like a cup of coffee, please.", "The meeting starts at nine.",
    "My sister lives in a small town by the sea.", "It has been raining since this morning.",
    "Could you open the window?", "The children are playing in the garden.", "We are looking for a hotel.",
    "He forgot his keys at the office.", "The book that you gave me is wonderful.", "How much does this cost?",
    "She has worked here for ten years.", "Please send me the report before Friday.", "I do not understand.",
    "The museum is closed on Mondays.", "Winter in the mountains is long and cold.", "Good night and sleep well.",
    "They bought a new house last year.", "I am learning to play the piano.", "Dinner will be ready soon.",
    "Can you recommend a good restaurant?", "The bus was late again.", "My favourite colour is blue.",
    "We should protect the forests.", "Thank you for your help.", "The cat is asleep on the sofa.")

_TRANSLATE = ("Translate into {}: ", "Translate the following sentence into {}:\n\n", "How do I say this in {}? ")


def _sums(rng):
    """Makers of small problems with random numbers."""
    n = rng.randint
    return (
        lambda: f"What is {n(2, 999)} {rng.choice('+-*')} {n(2, 99)}?",
        lambda: f"Solve for x: {n(2, 12)}x + {n(1, 40)} = {n(41, 120)}",
        lambda: f"A shop sells pens at ${n(2, 9)} each. How much do {n(3, 30)} pens cost, "
                f"with a discount of {rng.choice((5, 10, 20, 25))}%?",
        lambda: f"A car travels {n(60, 600)} km in {n(2, 8)} hours. What is its average speed?",
        lambda: f"A rectangle is {n(3, 40)} cm long and {n(2, 30)} cm wide. Find its area and perimeter.",
        lambda: f"What is {rng.choice((5, 10, 12, 15, 20, 30, 75))}% of {n(20, 900)}?",
        lambda: f"Find the derivative of f(x) = {n(2, 9)}x^{n(2, 6)} + {n(2, 20)}x.",
        lambda: f"There are {n(2, 12)} red and {n(2, 12)} blue marbles in a bag. "
                "What is the probability of drawing a red one?")


def _given(rng):
    """Endless user turns by category, each combined from parts."""
    chat = [a.format(t) for a in _ASKS[3:] for t in _TOPICS]
    question = [a.format(t) for a in _ASKS[:4] for t in _TOPICS] + [f"{w} {t}?" for w in _WHYS for t in _TOPICS]
    code = [f"Write a {lang} function that {t}{tail}" for lang in _PROGRAMMING for t in _TASKS for tail in _TAILS]
    translation = [f"{how.format(lang)}{s}" for lang in _LANGUAGES[:-1] for s in _SENTENCES for how in _TRANSLATE]
    sums = _sums(rng)
    mathematics = (rng.choice(sums)() for _ in itertools.count())
    summary = _product(rng, ("Summarize what is known about",), _TOPICS,
                       ("in two sentences.", "in one paragraph.", "for a busy reader.", "as bullet points."))
    return {"chat": _shuffled(rng, chat), "question": _shuffled(rng, question), "code": _shuffled(rng, code),
            "translation": _shuffled(rng, translation), "mathematics": mathematics, "summary": summary}

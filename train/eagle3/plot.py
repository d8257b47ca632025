"""Learning curves and accept lengths as one SVG; a plain text table says the same."""


def draw(path, history, results, title):
    """history: rows of trainer.run; results: {data set: evaluate.table}. matplotlib is needed only here."""
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    matplotlib.rcParams["svg.hashsalt"] = "draftlab"
    fig, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 3.8))
    for name in dict.fromkeys(r["variant"] for r in history):
        rows = [r for r in history if r["variant"] == name]
        x = [r["rows"] / 1e6 for r in rows]
        for step in (0, 2, 4):
            left.plot(x, [r["accuracy"][step] for r in rows], lw=1, label=f"{name}, step {step + 1}")
    left.set(xlabel="million rows trained", ylabel="training accuracy", title=title)
    left.legend(fontsize=6)
    for name, table in results.items():
        r = table["all"]
        steps = range(1, len(r["conditional"]) + 1)
        middle.plot(steps, r["conditional"], marker="o", ms=3, label=name)
        right.plot(steps, r["accept length"], marker="o", ms=3, label=name)
    middle.set(xlabel="draft step", ylabel="conditional acceptance", ylim=(0, 1), title="held out, temperature 0")
    right.set(xlabel="drafts a cycle (K)", ylabel="accept length", title="held out, temperature 0")
    middle.legend(fontsize=7)
    fig.tight_layout()
    fig.savefig(path, metadata={"Date": None})

package report

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"draftlab/internal/shell"
	"draftlab/lab/campaign"
	"draftlab/lab/campaign/file"
	"draftlab/lab/trial"
)

// headline is the answer in a sentence.
func (p *page) headline() string {
	if !p.result.Complete {
		return "So far: " + p.answer()
	}
	return p.answer()
}

func (p *page) answer() string {
	r := p.result
	again := (*campaign.Ratio)(nil)
	if r.Confirm != nil {
		again = decisive(r.Confirm.Speedup)
	}
	switch {
	case r.Verdict == campaign.Faster && r.Best != nil && decisive(r.Speedup) != nil:
		return fmt.Sprintf("Speculation pays here: %s %s%s.", r.Best.Name, p.outdoes(decisive(r.Speedup)), evidence(decisive(r.Speedup), "confirm run, "))
	case r.Verdict == campaign.NotConfirmed && again != nil:
		return fmt.Sprintf("Not confirmed: %s seemed faster than %s, but measured again it was %s.", r.Confirm.Arm, p.rival(), ratioWords(again))
	case r.Verdict == campaign.NotConfirmed:
		return fmt.Sprintf("Not confirmed: an arm seemed faster than %s, but measuring it again gave no usable pair.", p.rival())
	case p.nearest() == "":
		return "No arm was compared with plain decoding, so that there is no answer."
	case r.Verdict == campaign.NoneFaster:
		return fmt.Sprintf("Speculation does not pay here: no arm is faster than %s%s.", p.rival(), p.nearest())
	case r.Verdict == campaign.Undecided:
		return fmt.Sprintf("Undecided: no arm is faster than %s beyond doubt%s.", p.rival(), p.nearest())
	}
	return fmt.Sprintf("The campaign has no verdict of a kind that this report knows (%q)%s.", r.Verdict, p.nearest())
}

// rival is what arms have to beat.
func (p *page) rival() string {
	if r := p.result; r.BestPlain != "" && r.BestPlain != r.Baseline {
		return "the best plain decoding (" + r.BestPlain + ")"
	}
	return "plain decoding"
}

// outdoes says what a ratio is one of.
func (p *page) outdoes(r *campaign.Ratio) string {
	if p.result.Objective.Kind == file.Goodput {
		return fmt.Sprintf("answers %s as many requests within the limits as %s", times(r.Estimate), p.rival())
	}
	return fmt.Sprintf("writes %s as many tokens a second as %s", times(r.Estimate), p.rival())
}

// nearest names the arm whose interval reaches up the furthest with its lower end.
func (p *page) nearest() string {
	var best *campaign.ArmResult
	least := func(a *campaign.ArmResult) float64 {
		if low := decisive(a.Speedup).Low; low != nil {
			return *low
		}
		return 0
	}
	for i := range p.result.Arms {
		a := &p.result.Arms[i]
		if decisive(a.Speedup) == nil {
			continue
		}
		if best == nil || least(a) > least(best) || least(a) == least(best) && decisive(a.Speedup).Estimate > decisive(best.Speedup).Estimate {
			best = a
		}
	}
	if best == nil {
		return ""
	}
	return fmt.Sprintf("; the nearest is %s at %s", best.Name, ratioWords(decisive(best.Speedup)))
}

// evidence is an interval in brackets, for after an estimate; of says what the pairs are of.
func evidence(r *campaign.Ratio, of string) string {
	if r.Low == nil || r.High == nil {
		return fmt.Sprintf(" (%s%s, too few for an interval)", of, count(r.Pairs, "pair"))
	}
	text := fmt.Sprintf(" (%s interval %s; %s%s", level(r.Confidence), between(r.Low, r.High, 2), of, count(r.Pairs, "pair"))
	if r.Boots > 1 {
		text += fmt.Sprintf(" on %d starts", r.Boots)
	}
	return text + ")"
}

func (p *page) headlineShort() string {
	if p.result.Verdict == campaign.Faster && p.result.Best != nil && decisive(p.result.Speedup) != nil {
		return p.result.Best.Name + " " + times(decisive(p.result.Speedup).Estimate)
	}
	return strings.ReplaceAll(string(p.result.Verdict), "-", " ")
}

// facts are the key figures under the headline.
func (p *page) facts() (out []fact) {
	r := p.result
	add := func(name, value, note string) { out = append(out, fact{name, value, note}) }
	shown := r.arm(r.best())
	if shown == nil && r.Confirm != nil {
		shown = r.arm(r.Confirm.Arm)
	}
	if s := decisive(r.Speedup); s != nil {
		add("speed-up", times(s.Estimate), level(s.Confidence)+": "+between(s.Low, s.High, 2))
	}
	base := r.arm(r.BestPlain)
	if base == nil {
		base = r.arm(r.Baseline)
	}
	if base != nil && base.TokS != nil {
		add(base.Name, figure3(base.TokS.Median)+" tok/s", fmt.Sprintf("quartiles %s – %s", figure3(base.TokS.P25), figure3(base.TokS.P75)))
	}
	if shown != nil && shown.TokS != nil {
		add(shown.Name, figure3(shown.TokS.Median)+" tok/s", fmt.Sprintf("quartiles %s – %s", figure3(shown.TokS.P25), figure3(shown.TokS.P75)))
		if shown.Accept > 1 {
			add("accept length", fmt.Sprintf("%.2f", shown.Accept), "tokens a cycle")
		}
	}
	out = append(out, p.outputsFact())
	if b := r.Bandwidth; b != nil {
		add("memory beside the pairs", figure3(b.Median)+" GB/s", fmt.Sprintf("quartiles %s – %s", figure3(b.P25), figure3(b.P75)))
	}
	if r.ElapsedS > 0 {
		add("ran for", seconds(r.ElapsedS), fmt.Sprintf("%d arms", len(r.Arms)))
	}
	return out
}

func (p *page) outputsFact() fact {
	compared, different := 0, 0
	for _, a := range p.result.Arms {
		if a.Name != p.result.Baseline {
			compared, different = compared+a.Compared, different+len(a.Different)
		}
	}
	switch {
	case compared == 0:
		return fact{"outputs", "not compared", "with plain decoding's"}
	case !p.result.Lossless || different > 0:
		return fact{"outputs", "DIFFER", "from plain decoding's; see the doubts"}
	}
	return fact{"outputs", "identical", fmt.Sprintf("%d compared with plain decoding's", compared)}
}

func (p *page) doubts() section {
	s := section{ID: "doubts", Title: "Doubts", Notes: p.result.Warnings}
	if !p.result.Complete {
		s.Text = []string{"The campaign has not ended: this is what it has measured so far."}
		return s
	}
	if len(s.Notes) == 0 {
		s.Text = []string{"The campaign raised no warnings."}
	}
	return s
}

func (p *page) findings() section {
	s := section{ID: "findings", Title: "Why"}
	e := p.Explanation
	if e == nil {
		s.Text = []string{"No cost model could be fitted: " + p.Unexplained + "."}
		return s
	}
	for _, f := range e.Findings {
		s.Entries = append(s.Entries, entry{Title: f.Text, Code: f.Code})
	}
	if len(s.Entries) == 0 {
		s.Text = append(s.Text, "The cost model of lab/explain finds nothing to say about these figures.")
	}
	for _, w := range e.Warnings {
		s.Notes = append(s.Notes, w.Text+" ["+w.Code+"]")
	}
	return s
}

// chains is what the fitted model says of chains of every depth.
func (p *page) chains() *table {
	if p.Explanation == nil || len(p.Explanation.Predictions) == 0 {
		return nil
	}
	t := &table{Caption: "What the fitted model says of chains of each depth, measured or not (90 % intervals)", Columns: []column{{"chain", false}, {"cycle, ms", true}, {"accept length", true}, {"break-even", true}, {"tok/s", true}, {"interval", true}, {"speed-up", true}}}
	for _, q := range p.Explanation.Predictions {
		row := []string{q.Shape.String(), figure3(q.CycleMs), "", fmt.Sprintf("%.2f", q.BreakEven), "", "", ""}
		if q.AcceptLength != nil {
			row[2] = fmt.Sprintf("%.2f", *q.AcceptLength)
		}
		if q.TokS != nil {
			row[4] = figure3(*q.TokS)
		}
		if q.TokSInterval != nil {
			row[5] = figure3(q.TokSInterval[0]) + " – " + figure3(q.TokSInterval[1])
		}
		if q.Speedup != nil {
			row[6] = times(*q.Speedup)
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// predictions are those that were made before measuring, with their scores.
func (p *page) predictions() section {
	s := section{ID: "predictions", Title: "Predictions and how they fared"}
	if len(p.Predictions) == 0 {
		s.Text = []string{"Nothing was predicted before it was measured."}
		return s
	}
	t := &table{Caption: "Predictions, from models of other arms, and what was measured afterwards", Columns: []column{{"arm", false}, {"quantity", false}, {"predicted", true}, {"interval", true}, {"measured", true}, {"its interval", true}, {"off by", true}, {"inside", false}}}
	scored, inside := 0, 0
	for _, q := range p.Predictions {
		row := []string{q.Arm, strings.ReplaceAll(q.Quantity, "_", " "), figure3(q.Estimate), between(q.Low, q.High, 2), "not measured", "", "", ""}
		if m := q.Measured; m != nil {
			row[4], row[5], row[6] = figure3(m.Estimate), between(m.Low, m.High, 2), signedPercent(q.Estimate/m.Estimate-1)
			if q.Low != nil && q.High != nil {
				scored++
				row[7] = "no"
				if *q.Low <= m.Estimate && m.Estimate <= *q.High {
					inside++
					row[7] = "yes"
				}
			}
		}
		t.Rows = append(t.Rows, row)
	}
	if scored > 0 {
		s.Text = []string{fmt.Sprintf("%d of %d intervals hold what was measured afterwards.", inside, scored)}
	} else {
		s.Text = []string{"None of these was measured with an interval to score it by."}
	}
	s.Tables = []*table{t}
	return s
}

func (p *page) timelineSection() section {
	s := part("time", "Timeline", p.timeline(), "What ran when. Speeds that move together with the memory's are the machine's doing, not an arm's.",
		"The directory holds neither trials nor starts, so there is no timeline.")
	for _, d := range p.result.Drift {
		s.Notes = append(s.Notes, fmt.Sprintf("Within start %d the speed of plain decoding changed by %s from the first third of its readings to the last.", d.Boot, signedPercent(d.Ratio-1)))
	}
	if t := bootRows(p.Boots); t != nil {
		s.Tables = append(s.Tables, t)
	}
	for i := range p.Boots {
		if b := &p.Boots[i]; b.Cause != "" && len(b.Lines) > 0 {
			s.Code = append(s.Code, code{fmt.Sprintf("Start %d, %s: lines of its log that show the failure", b.ID, b.Name), strings.Join(b.Lines, "\n")})
		}
	}
	return s
}

// outcomes are the marks of verdicts; the words stand beside them.
var outcomes = map[trial.Outcome][2]string{
	trial.Supported: {"✓", "good"}, trial.Refuted: {"✗", "bad"}, trial.Undecided: {"?", "open"}, trial.NoEffect: {"=", "open"}, trial.Failed: {"!", "bad"},
}

func (p *page) verdicts() section {
	s := section{ID: "verdicts", Title: "Verdict log"}
	if len(p.Verdicts) == 0 {
		s.Text = []string{"No hypotheses were stated."}
		return s
	}
	s.Text = []string{"In the order in which they were judged. Refuted hypotheses stay."}
	for _, v := range p.Verdicts {
		mark, ok := outcomes[v.Outcome]
		if !ok {
			mark = [2]string{"?", "open"}
		}
		e := entry{Mark: mark[0] + " " + string(v.Outcome), Class: mark[1], Title: v.Hypothesis}
		for _, pair := range [][2]string{{"predicted", v.Predicted}, {"change", v.Change}, {"evidence", v.Evidence}, {"next", v.Next}, {"at", moment(v.At)}} {
			if pair[1] != "" {
				e.Pairs = append(e.Pairs, pair)
			}
		}
		s.Entries = append(s.Entries, e)
	}
	return s
}

func (p *page) environment() section {
	s := section{ID: "environment", Title: "Environment"}
	var checks, differences table
	differences = table{Caption: "Settings that are not what was asked for", Columns: []column{{"start", true}, {"setting", false}, {"asked", false}, {"got", false}, {"why", false}}}
	checks = table{Caption: "What became of the environment's variables", Columns: []column{{"start", true}, {"variable", false}, {"asked", false}, {"process", false}, {"got", false}, {"state", false}, {"line of the log", false}}}
	for i := range p.Boots {
		b := &p.Boots[i]
		for _, d := range b.Differences {
			differences.Rows = append(differences.Rows, []string{fmt.Sprint(b.ID), d.Key, d.Want, d.Got, d.Note})
		}
		for _, c := range b.Environment {
			checks.Rows = append(checks.Rows, []string{fmt.Sprint(b.ID), c.Name, c.Want, c.Process, c.Got, c.State, c.Line})
		}
	}
	for _, t := range []*table{&differences, &checks} {
		if len(t.Rows) > 0 {
			s.Tables = append(s.Tables, t)
		}
	}
	if len(checks.Rows) > 0 {
		s.Text = append(s.Text, "Of a variable, applied and ignored are what a log says; missing is one that the process does not have; unknown is one that it has, while nothing says whether it acts.")
	}
	if len(differences.Rows) == 0 && len(p.Boots) > 0 {
		s.Text = append(s.Text, "Every server says that it runs with the settings that were asked for, as far as it tells.")
	}
	if len(p.about) > 0 {
		t := &table{Caption: "What the result depends on beside its arms", Columns: []column{{"setting", false}, {"value", false}}, Closed: true}
		flatten("", p.about, &t.Rows)
		s.Tables = append(s.Tables, t)
	} else {
		s.Text = append(s.Text, "The result names no environment.")
	}
	for i := range p.Boots {
		if b := &p.Boots[i]; len(b.Info) > 0 {
			t := &table{Caption: fmt.Sprintf("What the server of start %d says of itself", b.ID), Columns: []column{{"setting", false}, {"value", false}}, Closed: true}
			flatten("", b.Info, &t.Rows)
			s.Tables = append(s.Tables, t)
			break // the others differ in what was asked for, which is above, and all of them are in the result
		}
	}
	return s
}

// flatten lists the leaves of a JSON document with their paths.
func flatten(path string, v any, rows *[][]string) {
	switch v := v.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			flatten(strings.TrimPrefix(path+"."+key, "."), v[key], rows)
		}
	case string:
		*rows = append(*rows, []string{path, v})
	case float64:
		*rows = append(*rows, []string{path, fmt.Sprint(v)})
	default:
		text, err := json.Marshal(v)
		if err != nil { // it came from JSON
			panic("report: " + err.Error())
		}
		*rows = append(*rows, []string{path, string(text)})
	}
}

// reproduce lists the commands that ran and that make this page.
func (p *page) reproduce() section {
	s := section{ID: "reproduce", Title: "To do it again"}
	var lines []string
	seen := map[string]bool{}
	for i := range p.Boots {
		if b := &p.Boots[i]; b.Command != "" && !seen[b.Command] {
			seen[b.Command] = true
			lines = append(lines, b.Command)
		}
	}
	if len(lines) > 0 {
		s.Code = append(s.Code, code{"The servers were started by", strings.Join(lines, "\n\n")})
	}
	if p.Campaign != "" {
		s.Code = append(s.Code, code{"The campaign file, for draftlab tune FILE", p.Campaign})
	}
	s.Code = append(s.Code, code{"This page is made by", "draftlab report " + shell.Path(p.Source)})
	return s
}

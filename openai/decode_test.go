package openai

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
)

func TestDecode(t *testing.T) {
	var r ChatRequest
	err := Decode([]byte(`{"model":"m","messages":[{"role":"system","content":"Be brief."},
		{"role":"user","content":[{"type":"text","text":"Say "},{"type":"text","text":"hi ☺"}],"name":null}],
		"temperature":0.5,"stop":"\n","logit_bias":{"5":-100},"stream":true,"stream_options":{"include_usage":true},
		"speculative":{"steps":3},"tools":[],"response_format":{ "type" : "text" },"seed":-1,"max_tokens":null}`), &r)
	if err != nil {
		t.Fatal(err)
	}
	want := Messages{{Role: "system", Content: "Be brief."}, {Role: "user", Content: "Say hi ☺"}}
	if !reflect.DeepEqual(r.Messages, want) {
		t.Errorf("messages = %+v", r.Messages)
	}
	if *r.Temperature != 0.5 || r.Stop[0] != "\n" || r.LogitBias["5"] != -100 || !r.StreamOptions.IncludeUsage ||
		*r.Speculative.Steps != 3 || *r.Seed != -1 || r.MaxTokens != nil || r.TopP != nil {
		t.Errorf("options = %+v", r.Options)
	}
}

func TestDecodePrompt(t *testing.T) {
	for in, want := range map[string]Prompt{
		`"a"`:         {Texts: []string{"a"}},
		`""`:          {Texts: []string{""}},
		`["a"]`:       {Texts: []string{"a"}, Many: true},
		`["a","b"]`:   {Texts: []string{"a", "b"}, Many: true},
		`[1,2]`:       {IDs: [][]int32{{1, 2}}},
		`[[1]]`:       {IDs: [][]int32{{1}}, Many: true},
		`[[1],[2,3]]`: {IDs: [][]int32{{1}, {2, 3}}, Many: true},
		`[]`:          {IDs: [][]int32{{}}},
	} {
		var r CompletionRequest
		if err := Decode([]byte(`{"prompt":`+in+`}`), &r); err != nil || !reflect.DeepEqual(r.Prompt, want) {
			t.Errorf("prompt %s = %+v, %v", in, r.Prompt, err)
		}
		again, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var back Prompt
		if err := json.Unmarshal(again, &back); err != nil || !reflect.DeepEqual(back, want) {
			t.Errorf("prompt %s through JSON = %+v, %v", in, back, err)
		}
	}
}

func TestDecodeErrors(t *testing.T) {
	chat := func(s string) string { return `{"messages":[{"role":"user","content":"x"}],` + s + `}` }
	for _, c := range []struct{ in, param, code, message string }{
		{``, "", "invalid_json", "not valid JSON"},
		{`[]`, "", "invalid_value", "want an object, got a list"},
		{`null`, "", "invalid_value", "want an object, got null"},
		{`{"a":1} {}`, "", "invalid_json", "after top-level value"},
		{"{\"a\":\"\xff\"}", "", "invalid_json", "not valid UTF-8 (at byte 6)"},
		{`{"a":"\ud800"}`, "", "invalid_json", "surrogate"},
		{`{"a":"\ud800\u0041"}`, "", "invalid_json", "surrogate"},
		{`{"a":"\udc00"}`, "", "invalid_json", "surrogate"},
		{strings.Repeat("[", 100000), "", "invalid_json", "deeper than 32"},
		{`{}`, "messages", "missing_required_parameter", ""},
		{`{"messages":null}`, "messages", "missing_required_parameter", ""},
		{`{"messages":5}`, "messages", "invalid_value", "want a list, got a number"},
		{`{"messages":[{"role":"user"}]}`, "messages[0].content", "missing_required_parameter", "parameter: messages[0].content"},
		{`{"messages":[{"role":"user","content":["a"]}]}`, "messages[0].content[0]", "invalid_value", "messages[0].content[0]: want an object, got a string"},
		{`{"messages":[{"role":"user","content":"a","x":1}]}`, "messages[0].x", "unknown_parameter", `"messages[0].x"`},
		{`{"messages":[{"role":"user","content":"a"},{"role":1,"content":"a"}]}`, "messages[1].role", "invalid_value", "want a string, got number"},
		{`{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{}}]}]}`, "messages[0].content[0].type", "unsupported_value", "image_url"},
		{`{"messages":[{"role":"user","content":[{"type":"text"}]}]}`, "messages[0].content[0].text", "missing_required_parameter", ""},
		{`{"messages":[{"role":"user","content":"a","tool_calls":[1]}]}`, "messages[0].tool_calls", "unsupported_parameter", "messages[0].tool_calls is not supported"},
		{`{"messages":[null]}`, "messages[0]", "invalid_value", "got null"},
		{chat(`"Temperature":1`), "Temperature", "unknown_parameter", `"Temperature"`},
		{chat(`"tools":[{}]`), "tools", "unsupported_parameter", "tools is not supported"},
		{chat(`"temperature":"hot"`), "temperature", "invalid_value", "want a number, got string"},
		{chat(`"temperature":1e999`), "temperature", "invalid_value", "1e999"},
		{chat(`"temperature":NaN`), "", "invalid_json", "not valid JSON"},
		{chat(`"n":1.5`), "n", "invalid_value", "want a whole number"},
		{chat(`"seed":9007199254740992.0`), "seed", "invalid_value", "want a whole number"}, // it may have been rounded to that
		{chat(`"max_tokens":1e99`), "max_tokens", "invalid_value", "want a whole number"},
		{chat(`"max_tokens":"3"`), "max_tokens", "invalid_value", "want a whole number"},
		{chat(`"seed":99999999999999999999`), "seed", "invalid_value", "want a whole number"},
		{chat(`"stream":"yes"`), "stream", "invalid_value", "want true or false"},
		{chat(`"stop":[1]`), "stop", "invalid_value", "stop: want a string or a list of strings, got a list"},
		{chat(`"stop":[null]`), "stop", "invalid_value", "entry 0 is null"},
		{chat(`"stream_options":{"x":1}`), "stream_options.x", "unknown_parameter", ""},
		{chat(`"speculative":{"steps":"3"}`), "speculative.steps", "invalid_value", "speculative.steps: "},
		{chat(`"logit_bias":{"1":"x"}`), "logit_bias", "invalid_value", "want a number"},
	} {
		var r ChatRequest
		err := Decode([]byte(c.in), &r)
		var e *Error
		if !errors.As(err, &e) {
			t.Errorf("%.80s: %v", c.in, err)
			continue
		}
		if e.Param != c.param || e.Code != c.code || !strings.Contains(e.Message, c.message) || e.Status != 400 {
			t.Errorf("%.80s: param %q, code %q, message %q; want %+v", c.in, e.Param, e.Code, e.Message, c)
		}
	}
	for in, part := range map[string]string{`[null]`: "null", `["a",1]`: "none", `{}`: "object", `[99999999999]`: "2^31", `[[1],2]`: "none"} {
		err := Decode([]byte(`{"prompt":`+in+`}`), &CompletionRequest{})
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("prompt %s: %v; want %q", in, err, part)
		}
	}
}

// TestWholeNumbers checks that a whole number may be written with a fraction or an exponent, as clients in languages without integers do.
func TestWholeNumbers(t *testing.T) {
	var r CompletionRequest
	err := Decode([]byte("\ufeff"+`{"prompt":"a","n":2.0,"max_tokens":1e2,"seed":-70.0e-1,"logprobs":0.0,"speculative":{"steps":3.0},"temperature":1.5}`), &r)
	if err != nil {
		t.Fatal(err)
	}
	if *r.N != 2 || *r.MaxTokens != 100 || *r.Seed != -7 || *r.Logprobs != 0 || *r.Speculative.Steps != 3 || *r.Temperature != 1.5 {
		t.Errorf("%+v", r)
	}
}

// TestSurrogates checks that what is no half of a pair passes.
func TestSurrogates(t *testing.T) {
	var r CompletionRequest
	err := Decode([]byte(`{"prompt":"\ud83d\ude00 \\ud800 \\\\ \" \uD83D\uDE00"}`), &r)
	if want := "😀 \\ud800 \\\\ \" 😀"; err != nil || r.Prompt.Texts[0] != want {
		t.Errorf("%q, %v; want %q", r.Prompt.Texts, err, want)
	}
}

func TestErrorJSON(t *testing.T) {
	out, err := json.Marshal(ErrorBody{Invalid("top_p", "top_p = %v", 2)})
	if want := `{"error":{"message":"top_p = 2","type":"invalid_request_error","param":"top_p","code":"invalid_value"}}`; err != nil || string(out) != want {
		t.Errorf("%s, %v; want %s", out, err, want)
	}
	var b ErrorBody
	if err := json.Unmarshal([]byte(`{"error":{"message":"m","type":"t","param":null,"code":404}}`), &b); err != nil || b.Error.Code != "404" || b.Error.Param != "" {
		t.Errorf("%+v, %v", b.Error, err)
	}
	if err := json.Unmarshal([]byte(`{"error":{"message":"m","code":null}}`), &b); err != nil || b.Error.Code != "" {
		t.Errorf("%+v, %v", b.Error, err)
	}
}

// FuzzDecode checks that whatever is accepted can be written and read again, and that every refusal says what is wrong.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}],"stop":["a"],"speculative":{"steps":1}}`))
	f.Add([]byte(`{"prompt":[[1,2],[3]],"logit_bias":{"1":1e2},"logprobs":3}`))
	f.Add([]byte("{\"prompt\":\"\\ud83d\\ude00\xff\"}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, v := range []any{&CompletionRequest{}, &ChatRequest{}} {
			if err := Decode(data, v); err != nil {
				var e *Error
				if !errors.As(err, &e) || e.Status != 400 || e.Message == "" || e.Code == "" {
					t.Errorf("error %#v", err)
				}
				continue
			}
			again, err := json.Marshal(v)
			if err != nil {
				t.Fatalf("%+v: %v", v, err)
			}
			back := reflect.New(reflect.TypeOf(v).Elem()).Interface()
			if err := Decode(again, back); err != nil {
				t.Fatalf("%s: %v", again, err)
			}
		}
	})
}

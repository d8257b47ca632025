package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// The types of errors, in the API's words.
const (
	InvalidRequest = "invalid_request_error"
	Authentication = "authentication_error"
	RateLimit      = "rate_limit_error"
	ServerError    = "server_error"
)

// Error is a failed request, in the API's shape. It travels as {"error": Error}.
type Error struct {
	Status  int // the HTTP status; not part of the JSON
	Message string
	Type    string
	Param   string // the parameter that is at fault, such as "messages[0].content"; "" is null on the wire
	Code    string // a word for programs, such as "context_length_exceeded"; "" is null on the wire
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// Invalid returns the error for a bad value of a parameter, which the message should name too.
func Invalid(param, format string, a ...any) *Error {
	return &Error{Status: 400, Message: fmt.Sprintf(format, a...), Type: InvalidRequest, Param: param, Code: invalidValue}
}

// The codes of errors that are about the parameter as such.
const (
	invalidValue     = "invalid_value"
	unknownParam     = "unknown_parameter"
	unsupportedParam = "unsupported_parameter"
	missingParam     = "missing_required_parameter"
)

// aboutParam returns the error of one of those codes.
func aboutParam(param, code string) *Error {
	e := &Error{Status: 400, Type: InvalidRequest, Param: param, Code: code}
	switch code {
	case unknownParam:
		e.Message = fmt.Sprintf("unknown parameter: %q", Clip(param))
	case unsupportedParam:
		e.Message = param + " is not supported by this server"
	case missingParam:
		e.Message = "missing required parameter: " + param
	}
	return e
}

// within returns the error with the parameter's place put in front, in the message too; a place that begins with "[" follows without a dot.
func (e *Error) within(place string) *Error {
	sep := "."
	if e.Param == "" || e.Param[0] == '[' {
		sep = ""
	}
	param := place + sep + e.Param
	switch e.Code {
	case unknownParam, unsupportedParam, missingParam:
		return aboutParam(param, e.Code)
	}
	c := *e
	if c.Param = param; e.Code == invalidValue {
		c.Message = param + ": " + strings.TrimPrefix(e.Message, e.Param+": ")
	}
	return &c
}

// errorFields is Error on the wire.
type errorFields struct {
	Message string          `json:"message"`
	Type    string          `json:"type"`
	Param   *string         `json:"param"`
	Code    json.RawMessage `json:"code"`
}

// MarshalJSON writes the four fields that the API's clients look for.
func (e *Error) MarshalJSON() ([]byte, error) {
	f := errorFields{Message: e.Message, Type: e.Type, Code: json.RawMessage("null")}
	if e.Param != "" {
		f.Param = &e.Param
	}
	if e.Code != "" {
		f.Code, _ = json.Marshal(e.Code) // a string cannot fail
	}
	return json.Marshal(f)
}

// UnmarshalJSON reads the error of any server; some write the HTTP status as a number where the code belongs.
func (e *Error) UnmarshalJSON(data []byte) error {
	var f errorFields
	if err := json.Unmarshal(data, &f); err != nil {
		return err
	}
	*e = Error{Status: e.Status, Message: f.Message, Type: f.Type}
	if f.Param != nil {
		e.Param = *f.Param
	}
	if code := bytes.Trim(f.Code, `"`); string(code) != "null" {
		e.Code = string(code)
	}
	return nil
}

// ErrorBody is the body of a failed request.
type ErrorBody struct {
	Error *Error `json:"error"`
}

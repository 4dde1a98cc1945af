// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vmihailenco/msgpack/v5"
	"github.com/vmihailenco/msgpack/v5/msgpcode"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/internal/jsontext"
	"github.com/refold-io/refold/internal/panics"
	"github.com/refold-io/refold/journal"
)

var (
	// ErrTooLong is returned by Format.Render with the beginning of the JSON.
	ErrTooLong = errors.New("too long to print")

	errFormat = errors.New("in an application-specific format")
	errOwn    = errors.New("a record of Refold itself")
)

// Render returns a payload as compact, printable JSON, without its Go type. If the JSON exceeds
// limit bytes, Render returns ErrTooLong with the beginning.
func (f Format) Render(payload []byte, limit int) ([]byte, error) {
	if err := f.Check(payload); err != nil {
		return nil, err
	}
	switch f {
	case Msgpack:
		r := renderer{in: msgpack.NewDecoder(bytes.NewReader(payload)), limit: limit}
		err := r.value()
		if err == nil && len(r.out) > limit {
			err = ErrTooLong
		}
		if err != nil && !errors.Is(err, ErrTooLong) {
			err = fmt.Errorf("%w: %w", codec.ErrMalformed, err)
		}
		return r.out, err
	case JSON:
		if len(payload) > 4*limit { // whitespace does not explain such a size
			return nil, ErrTooLong
		}
		var b bytes.Buffer
		if err := json.Compact(&b, payload); err != nil {
			return nil, err
		}
		out := jsontext.AppendPrintable(nil, b.Bytes())
		if len(out) > limit {
			return out, ErrTooLong
		}
		return out, nil
	case Own:
		return nil, errOwn
	case Unknown:
	}
	return nil, errFormat
}

// renderer converts msgpack to JSON. When out exceeds the limit, it stops; out holds the beginning.
type renderer struct {
	in    *msgpack.Decoder
	out   []byte
	limit int
}

func (r *renderer) value() error {
	if len(r.out) > r.limit {
		return ErrTooLong
	}
	code, err := r.in.PeekCode()
	if err != nil {
		return err
	}
	switch {
	case isMap(code):
		n, err := r.in.DecodeMapLen()
		return r.list(n, err, "{}", r.field)
	case msgpcode.IsFixedArray(code), code == msgpcode.Array16, code == msgpcode.Array32:
		n, err := r.in.DecodeArrayLen()
		return r.list(n, err, "[]", r.value)
	case msgpcode.IsBin(code):
		b, err := r.in.DecodeBytes()
		r.binary(b)
		return err
	case msgpcode.IsString(code):
		s, err := r.in.DecodeString()
		r.out = jsontext.AppendQuoted(r.out, s, r.limit)
		return err
	case msgpcode.IsExt(code):
		return r.extension()
	}
	return r.scalar(code)
}

func isMap(code byte) bool {
	return msgpcode.IsFixedMap(code) || code == msgpcode.Map16 || code == msgpcode.Map32
}

func (r *renderer) binary(b []byte) {
	b = b[:min(len(b), r.limit)] // base64 is longer, so it also exceeds the limit
	r.out = append(base64.StdEncoding.AppendEncode(append(r.out, '"'), b), '"')
}

// list renders the n elements of an array or a map between two brackets.
func (r *renderer) list(n int, err error, brackets string, element func() error) error {
	if err != nil {
		return err
	}
	r.out = append(r.out, brackets[0])
	for i := range n {
		if i > 0 {
			r.out = append(r.out, ',')
		}
		if err := element(); err != nil {
			return err
		}
	}
	r.out = append(r.out, brackets[1])
	return nil
}

// field renders a map key and its value. A key that is not a string becomes its JSON as a string.
func (r *renderer) field() error {
	start := len(r.out)
	if err := r.value(); err != nil {
		return err
	}
	if r.out[start] != '"' {
		text := string(r.out[start:])
		r.out = jsontext.AppendQuoted(r.out[:start], text, r.limit)
	}
	r.out = append(r.out, ':')
	return r.value()
}

func (r *renderer) scalar(code byte) error {
	switch code {
	case msgpcode.Nil:
		r.out = append(r.out, "null"...)
		return r.in.DecodeNil()
	case msgpcode.False, msgpcode.True:
		b, err := r.in.DecodeBool()
		r.out = strconv.AppendBool(r.out, b)
		return err
	case msgpcode.Float:
		f, err := r.in.DecodeFloat32()
		r.float(float64(f), 32)
		return err
	case msgpcode.Double:
		f, err := r.in.DecodeFloat64()
		r.float(f, 64)
		return err
	case msgpcode.Uint64:
		u, err := r.in.DecodeUint64()
		r.out = strconv.AppendUint(r.out, u, 10)
		return err
	}
	i, err := r.in.DecodeInt64()
	r.out = strconv.AppendInt(r.out, i, 10)
	return err
}

// float appends a number that is distinguishable from an integer.
func (r *renderer) float(f float64, bits int) {
	text := strconv.FormatFloat(f, 'g', -1, bits)
	switch {
	case math.IsNaN(f), math.IsInf(f, 0):
		text = strconv.Quote(text)
	case !strings.ContainsAny(text, ".e"):
		text += ".0"
	}
	r.out = append(r.out, text...)
}

func (r *renderer) extension() error {
	typ, size, err := r.in.DecodeExtHeader()
	if err != nil {
		return err
	}
	data := make([]byte, size)
	if err := r.in.ReadFull(data); err != nil {
		return err
	}
	if at, ok := timeOf(typ, data); ok {
		r.out = append(at.AppendFormat(append(r.out, '"'), time.RFC3339Nano), '"')
		return nil
	}
	r.out = fmt.Appendf(r.out, `{"extension":%d,"data":`, typ)
	r.binary(data)
	r.out = append(r.out, '}')
	return nil
}

// timeOf decodes a timestamp, which has the extension type -1.
func timeOf(typ int8, data []byte) (at time.Time, ok bool) {
	switch {
	case typ != -1:
		return at, false
	case len(data) == 4:
		return time.Unix(int64(binary.BigEndian.Uint32(data)), 0).UTC(), true
	case len(data) == 8:
		u := binary.BigEndian.Uint64(data)
		return time.Unix(int64(u&(1<<34-1)), int64(u>>34)).UTC(), true
	case len(data) == 12:
		seconds := int64(binary.BigEndian.Uint64(data[4:])) //nolint:gosec // two's complement
		return time.Unix(seconds, int64(binary.BigEndian.Uint32(data))).UTC(), true
	}
	return at, false
}

// Format is the encoding of a payload. It is determined without the Go type.
type Format uint8

const (
	// Unknown is a format of the application.
	Unknown Format = iota
	// Msgpack is the format of codec, which can be rendered.
	Msgpack
	// JSON can be rendered.
	JSON
	// Own is the format of the records of Refold itself.
	Own
)

// FormatOfRecord returns the format of an event of a persistence ID.
func FormatOfRecord(id, manifest string) Format {
	if journal.IsReserved(id) {
		return Own
	}
	return FormatOf(manifest)
}

// FormatOf derives the format of an event from the suffix of its manifest.
func FormatOf(manifest string) Format {
	_, name, found := strings.Cut(manifest, "+")
	switch {
	case !found:
		return Msgpack
	case name == "json":
		return JSON
	}
	return Unknown
}

// FormatOfState returns the format of a snapshot. For a state that the aggregate encodes itself,
// FormatOfState guesses the format from the payload.
func FormatOfState(manifest string, payload []byte) Format {
	switch {
	case manifest == eventsourcing.StateManifest, strings.HasPrefix(manifest, eventsourcing.StateManifest+"@"):
		return Msgpack
	case json.Valid(payload):
		return JSON
	case len(payload) > 0 && isMap(payload[0]) && codec.Check(payload) == nil:
		return Msgpack
	}
	return Unknown
}

var errNotJSON = errors.New("the payload is not valid JSON")

// Check returns an error unless the syntax of a payload is valid. It accepts payloads in an
// application-specific format.
func (f Format) Check(payload []byte) error {
	switch f {
	case Msgpack:
		return codec.Check(payload)
	case JSON:
		if !json.Valid(payload) {
			return errNotJSON
		}
	case Own, Unknown:
	}
	return nil
}

// Field is a field of a payload.
type Field struct {
	// ID is the persistence ID, and Manifest that of the event, the snapshot or the state. The
	// manifest is "delivery" for a command in an outbox.
	ID, Manifest string
	// Path are the keys and indexes that lead to the field. It is empty for the whole payload. It
	// must not be changed or kept.
	Path []string
}

// redactedText replaces the value of a redacted field.
const redactedText = "(redacted)"

// redaction replaces fields of one payload. The nil pointer replaces none.
type redaction struct {
	hide         func(Field) bool
	id, manifest string
}

// hides reports whether the field with a path is replaced. If the function panics, it is.
func (r *redaction) hides(path []string) (hidden bool) {
	if r == nil {
		return false
	}
	hidden = true
	_ = panics.Call(func() { hidden = r.hide(Field{r.id, r.manifest, path}) })
	return hidden
}

// value returns a decoded value with its fields replaced.
func (r *redaction) value(path []string, v any) any {
	if r == nil {
		return v
	}
	if r.hides(path) {
		return redactedText
	}
	path = slices.Clip(path)
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, value := range v {
			out[key] = r.value(append(path, key), value)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, value := range v {
			out[i] = r.value(append(path, strconv.Itoa(i)), value)
		}
		return out
	}
	return v
}

// text returns compact JSON with its fields replaced, and whether a field was. It keeps the order
// of the fields.
func (r *redaction) text(compact []byte) (out []byte, redacted bool, failed error) {
	in := json.NewDecoder(bytes.NewReader(compact))
	in.UseNumber()
	var path []string
	var copyValue func() error
	element := func(name string) error {
		path = append(path, name)
		err := copyValue()
		path = path[:len(path)-1]
		return err
	}
	copyValue = func() error {
		if r.hides(path) {
			var skipped json.RawMessage
			redacted = true
			out = jsontext.AppendQuoted(out, redactedText, math.MaxInt)
			return in.Decode(&skipped)
		}
		t, err := in.Token()
		if err != nil {
			return err
		}
		switch t := t.(type) {
		case json.Delim:
			out = append(out, byte(t)) //nolint:gosec // a bracket
			for i := 0; in.More(); i++ {
				if i > 0 {
					out = append(out, ',')
				}
				name := strconv.Itoa(i)
				if t == '{' {
					key, broken := in.Token()
					if broken != nil {
						return broken
					}
					name, _ = key.(string)
					out = append(jsontext.AppendQuoted(out, name, math.MaxInt), ':')
				}
				if err := element(name); err != nil {
					return err
				}
			}
			end, err := in.Token()
			if d, ok := end.(json.Delim); ok {
				out = append(out, byte(d)) //nolint:gosec // a bracket
			}
			return err
		case string:
			out = jsontext.AppendQuoted(out, t, math.MaxInt)
		case json.Number:
			out = append(out, t...)
		case bool:
			out = strconv.AppendBool(out, t)
		default:
			out = append(out, "null"...)
		}
		return nil
	}
	failed = copyValue()
	return out, redacted, failed
}

// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/vmihailenco/msgpack/v5"
	"github.com/vmihailenco/msgpack/v5/msgpcode"

	"github.com/refold-io/refold/cmd/refold/internal/console"
	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/journal"
)

var (
	errTooLong = errors.New("too long to print")
	errFormat  = errors.New("in an application-specific format")
	errOwn     = errors.New("a record of Refold itself")
)

// render returns a payload as compact, printable JSON, without its Go type. If the JSON exceeds
// limit bytes, render returns errTooLong with the beginning.
func (f format) render(payload []byte, limit int) ([]byte, error) {
	if err := f.check(payload); err != nil {
		return nil, err
	}
	switch f {
	case msgpackFormat:
		r := renderer{in: msgpack.NewDecoder(bytes.NewReader(payload)), limit: limit}
		err := r.value()
		if err == nil && len(r.out) > limit {
			err = errTooLong
		}
		if err != nil && !errors.Is(err, errTooLong) {
			err = fmt.Errorf("%w: %w", codec.ErrMalformed, err)
		}
		return r.out, err
	case jsonFormat:
		if len(payload) > 4*limit { // whitespace does not explain such a size
			return nil, errTooLong
		}
		var b bytes.Buffer
		if err := json.Compact(&b, payload); err != nil {
			return nil, err
		}
		out := console.AppendPrintable(nil, b.Bytes())
		if len(out) > limit {
			return out, errTooLong
		}
		return out, nil
	case ownFormat:
		return nil, errOwn
	case unknownFormat:
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
		return errTooLong
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
		r.out = console.AppendQuoted(r.out, s, r.limit)
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
		r.out = console.AppendQuoted(r.out[:start], text, r.limit)
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

// format is the encoding of a payload. It is determined without the Go type.
type format uint8

const (
	unknownFormat format = iota
	msgpackFormat
	jsonFormat
	ownFormat // of the records of Refold itself
)

// formatOfRecord returns the format of an event of a persistence ID.
func formatOfRecord(id, manifest string) format {
	if journal.IsReserved(id) {
		return ownFormat
	}
	return formatOf(manifest)
}

// formatOf derives the format of an event from the suffix of its manifest.
func formatOf(manifest string) format {
	_, name, found := strings.Cut(manifest, "+")
	switch {
	case !found:
		return msgpackFormat
	case name == "json":
		return jsonFormat
	}
	return unknownFormat
}

// formatOfState returns the format of a snapshot. For a state that the aggregate encodes itself,
// formatOfState guesses the format from the payload.
func formatOfState(manifest string, payload []byte) format {
	switch {
	case manifest == eventsourcing.StateManifest, strings.HasPrefix(manifest, eventsourcing.StateManifest+"@"):
		return msgpackFormat
	case json.Valid(payload):
		return jsonFormat
	case len(payload) > 0 && isMap(payload[0]) && codec.Check(payload) == nil:
		return msgpackFormat
	}
	return unknownFormat
}

var errNotJSON = errors.New("the payload is not valid JSON")

func (f format) check(payload []byte) error {
	switch f {
	case msgpackFormat:
		return codec.Check(payload)
	case jsonFormat:
		if !json.Valid(payload) {
			return errNotJSON
		}
	case ownFormat, unknownFormat:
	}
	return nil
}

const (
	// cellLength is the length of a payload in a table, in characters.
	cellLength = 160
	// lineLength bounds a payload in a line of JSON, in bytes.
	lineLength = 8 << 20
)

type rendered struct {
	Payload json.RawMessage `json:"payload"`
	// Error is the reason why Payload is empty. Raw is then the stored payload, unless it is too
	// long.
	Error string `json:"payload_error,omitempty"`
	Raw   []byte `json:"payload_raw,omitempty"`
}

func renderLine(f format, payload []byte) rendered {
	text, err := f.render(payload, lineLength)
	if err == nil {
		return rendered{Payload: text}
	}
	r := rendered{Error: err.Error()}
	if base64.StdEncoding.EncodedLen(len(payload)) <= lineLength {
		r.Raw = payload
	}
	return r
}

func renderCell(f format, payload []byte) string {
	text, err := f.render(payload, 4*cellLength)
	if err != nil && !errors.Is(err, errTooLong) {
		return fmt.Sprintf("(%s: %v)", count(len(payload), "byte"), err)
	}
	return shorten(string(text), cellLength)
}

func shorten(s string, n int) string {
	for i := range s {
		if n--; n < 0 {
			return s[:i] + "…"
		}
	}
	return s
}

// stamp formats a time with a fixed length.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000Z") }

func count[N int | uint64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

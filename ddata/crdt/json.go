// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/refold-io/refold/identity"
)

// JSON converts values to JSON for operators and tools. The zero value is ready to use.
type JSON struct {
	// Named returns the JSON of an element that a codec registry has encoded. ok is false if there
	// is no JSON for the element. Optional.
	Named func(manifest string, payload []byte) (text []byte, ok bool)
}

// Append appends the meaning of a value as compact JSON. Equal values give equal text on all nodes.
// The conversion is one-way: the history of nodes is left out.
//
//	GCounter, PNCounter      the count, with all digits
//	GSet, ORSet              a list of the elements in their order
//	Flag                     true or false
//	LWWRegister              {"value":V,"time":T,"node":"a:1#9f2c"}, or null
//	VersionVector            {"a:1#9f2c":3}
//	maps                     {"key":V} if all keys are text, else [{"key":K,"value":V}]
//	users' types             their MarshalJSON, else {"type":"name","base64":"AAE="}
//	elements                 plain JSON, floats with a point or an exponent;
//	                         {"base64":"AAE="} for bytes and for text that is not UTF-8,
//	                         {"float":"+Inf"}, and {"type":"manifest","value":V}, or
//	                         base64, for registered types
func (j JSON) Append(dst []byte, v Value) []byte {
	if v.c == nil {
		return append(dst, "null"...)
	}
	return j.core(dst, v.c)
}

// MarshalJSON returns the JSON of the value as JSON.Append writes it.
func (v Value) MarshalJSON() ([]byte, error) { return JSON{}.Append(nil, v), nil }

func (j JSON) core(dst []byte, c core) []byte {
	switch c := c.(type) {
	case *counter:
		return c.big().Append(dst, 10)
	case *gset:
		return jsonElements(j, dst, c.items)
	case *orset:
		return jsonElements(j, dst, c.items)
	case *flag:
		return strconv.AppendBool(dst, c.on)
	case *register:
		return j.register(dst, c)
	case *versions:
		dst = append(dst, '{')
		for i, d := range c.vector {
			dst = jsonNode(jsonComma(dst, i), d.node.Value())
			dst = strconv.AppendUint(append(dst, ':'), d.n, 10)
		}
		return append(dst, '}')
	case *ormap:
		return j.ormap(dst, c)
	case *custom:
		return j.custom(dst, c)
	}
	return append(dst, "null"...)
}

func jsonElements[V any](j JSON, dst []byte, items tree[V]) []byte {
	dst = append(dst, '[')
	n := 0
	for e := range items.all() {
		dst = j.element(jsonComma(dst, n), e)
		n++
	}
	return append(dst, ']')
}

func (j JSON) register(dst []byte, r *register) []byte {
	if r.content == "" {
		return append(dst, "null"...)
	}
	dst = j.element(append(dst, `{"value":`...), r.content)
	dst = strconv.AppendInt(append(dst, `,"time":`...), r.time, 10)
	return append(jsonNode(append(dst, `,"node":`...), nodeOf(r.node)), '}')
}

func (j JSON) ormap(dst []byte, m *ormap) []byte {
	text := true
	for key := range m.keys.items.all() {
		text = text && key[0] == tagString && utf8.ValidString(key[1:])
	}
	begin, end := byte('['), byte(']')
	if text {
		begin, end = '{', '}'
	}
	dst = append(dst, begin)
	n := 0
	for key := range m.keys.items.all() {
		dst = jsonComma(dst, n)
		n++
		v, _ := m.get(key)
		if text {
			dst = j.core(append(j.element(dst, key), ':'), v)
			continue
		}
		dst = append(j.element(append(dst, `{"key":`...), key), `,"value":`...)
		dst = append(j.core(dst, v), '}')
	}
	return append(dst, end)
}

func (j JSON) custom(dst []byte, o *custom) []byte {
	var text, data []byte
	err := catchPanic(o.def, "marshal JSON of", func() (err error) {
		if m, ok := o.v.(json.Marshaler); ok {
			text, err = json.Marshal(m) // validates and compacts the JSON
		}
		return err
	})
	if err == nil && text != nil {
		return append(dst, text...)
	}
	err = catchPanic(o.def, "encode", func() (err error) { data, err = o.def.value.appendTo(o.v, nil); return err })
	dst = jsonText(append(dst, `{"type":`...), o.def.name)
	if err != nil {
		return append(dst, '}')
	}
	return append(jsonBytes(append(dst, `,"base64":`...), data), '}')
}

func (j JSON) element(dst []byte, s string) []byte {
	switch tag := s[0]; {
	case tag == tagNamed:
		return j.named(dst, s)
	case tag == tagBytes, tag == tagString && !utf8.ValidString(s[1:]):
		return append(jsonBytes(append(dst, `{"base64":`...), []byte(s[1:])), '}')
	}
	switch e := plainElement(s).(type) {
	case string:
		return jsonText(dst, e)
	case bool:
		return strconv.AppendBool(dst, e)
	case int64:
		return strconv.AppendInt(dst, e, 10)
	case uint64:
		return strconv.AppendUint(dst, e, 10)
	case float64:
		if math.IsInf(e, 0) {
			return append(strconv.AppendFloat(append(dst, `{"float":"`...), e, 'g', -1, 64), `"}`...)
		}
		n := len(dst)
		dst = strconv.AppendFloat(dst, e, 'g', -1, 64)
		if !bytes.ContainsAny(dst[n:], ".e") { // distinguishes it from an integer
			dst = append(dst, ".0"...)
		}
		return dst
	}
	return append(dst, "null"...)
}

func (j JSON) named(dst []byte, s string) []byte {
	manifest, payload, _ := cutNamed(s)
	dst = jsonText(append(dst, `{"type":`...), manifest)
	if j.Named != nil {
		if text, ok := j.Named(manifest, []byte(payload)); ok {
			return append(append(append(dst, `,"value":`...), text...), '}')
		}
	}
	return append(jsonBytes(append(dst, `,"base64":`...), []byte(payload)), '}')
}

func jsonComma(dst []byte, n int) []byte {
	if n > 0 {
		dst = append(dst, ',')
	}
	return dst
}

func jsonNode(dst []byte, n identity.Node) []byte { return jsonText(dst, n.String()) }

func jsonBytes(dst, b []byte) []byte {
	return append(base64.StdEncoding.AppendEncode(append(dst, '"'), b), '"')
}

func jsonText(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	s = strings.ToValidUTF8(s, "\ufffd")
	dst = append(dst, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"', c == '\\':
			dst = append(dst, '\\', c)
		case c < ' ', c == 0x7f:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			dst = append(dst, c)
		}
	}
	return append(dst, '"')
}

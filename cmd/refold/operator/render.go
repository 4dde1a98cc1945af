// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/refold-io/refold/codec"
)

var (
	errTooLong = errors.New("too long to be printed")
	errFormat  = errors.New("in a format that only the program knows that wrote it")
)

// render returns a payload as compact JSON that is printable, without knowing
// its Go type. It fails with errTooLong, with the beginning, when that takes more
// than limit bytes.
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
		if len(payload) > 4*limit { // what blanks it has are not that many
			return nil, errTooLong
		}
		var b bytes.Buffer
		if err := json.Compact(&b, payload); err != nil {
			return nil, err
		}
		out := appendPrintable(nil, b.Bytes())
		if len(out) > limit {
			return out, errTooLong
		}
		return out, nil
	case unknownFormat:
	}
	return nil, errFormat
}

// renderer turns msgpack that is known to be well-formed into JSON. When it
// stops because out is too long, out holds the beginning.
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
	switch kindOf(code) {
	case aMap:
		return r.object()
	case anArray:
		return r.array()
	case aString:
		s, err := r.in.DecodeString()
		r.out = appendQuoted(r.out, s, r.limit)
		return err
	case aBinary:
		b, err := r.in.DecodeBytes()
		r.binary(b)
		return err
	case anExtension:
		return r.extension()
	case aScalar:
	}
	return r.scalar(code)
}

func (r *renderer) binary(b []byte) {
	b = b[:min(len(b), r.limit)] // it is longer in base64, and so too long
	r.out = append(base64.StdEncoding.AppendEncode(append(r.out, '"'), b), '"')
}

func (r *renderer) array() error {
	n, err := r.in.DecodeArrayLen()
	if err != nil {
		return err
	}
	r.out = append(r.out, '[')
	for i := range n {
		if i > 0 {
			r.out = append(r.out, ',')
		}
		if err := r.value(); err != nil {
			return err
		}
	}
	r.out = append(r.out, ']')
	return nil
}

func (r *renderer) object() error {
	n, err := r.in.DecodeMapLen()
	if err != nil {
		return err
	}
	r.out = append(r.out, '{')
	for i := range n {
		if i > 0 {
			r.out = append(r.out, ',')
		}
		if err := r.key(); err != nil {
			return err
		}
		r.out = append(r.out, ':')
		if err := r.value(); err != nil {
			return err
		}
	}
	r.out = append(r.out, '}')
	return nil
}

// key makes a string of a key that is none: what its JSON would be.
func (r *renderer) key() error {
	start := len(r.out)
	if err := r.value(); err != nil {
		return err
	}
	if r.out[start] != '"' {
		text := string(r.out[start:])
		r.out = appendQuoted(r.out[:start], text, r.limit)
	}
	return nil
}

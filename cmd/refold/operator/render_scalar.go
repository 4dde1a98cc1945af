// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

// kind is what a msgpack value is, as far as rendering differs.
type kind uint8

const (
	aScalar kind = iota
	aMap
	anArray
	aString
	aBinary
	anExtension
)

func kindOf(code byte) kind {
	switch {
	case msgpcode.IsFixedMap(code), code == msgpcode.Map16, code == msgpcode.Map32:
		return aMap
	case msgpcode.IsFixedArray(code), code == msgpcode.Array16, code == msgpcode.Array32:
		return anArray
	case msgpcode.IsBin(code):
		return aBinary
	case msgpcode.IsString(code):
		return aString
	case msgpcode.IsExt(code):
		return anExtension
	}
	return aScalar
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

// float appends a number that can be told from an integer.
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

// timestamp is the type of the extension that is a time.
const timestamp = -1

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

// timeOf decodes a timestamp.
func timeOf(typ int8, data []byte) (at time.Time, ok bool) {
	if typ != timestamp {
		return at, false
	}
	switch len(data) {
	case 4:
		return time.Unix(int64(binary.BigEndian.Uint32(data)), 0).UTC(), true
	case 8:
		u := binary.BigEndian.Uint64(data)
		return time.Unix(int64(u&(1<<34-1)), int64(u>>34)).UTC(), true
	case 12:
		seconds := int64(binary.BigEndian.Uint64(data[4:])) //nolint:gosec // two's complement
		return time.Unix(seconds, int64(binary.BigEndian.Uint32(data))).UTC(), true
	}
	return at, false
}

// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package codec_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/refold-io/refold/codec"
)

// Each benchmark has a counterpart that uses only the msgpack library, in its fastest way.

type transferred struct {
	From   string
	Memo   string
	Amount int64
	At     time.Time
	Number int
}

func transfer() transferred {
	return transferred{"account|42", strings.Repeat("x", 180), 12345, time.Unix(1_700_000_000, 5).UTC(), 3}
}

type basket struct {
	Items  []Base
	Counts map[string]int
	Owner  *Base
}

func fullBasket() basket {
	b := basket{Counts: map[string]int{}, Owner: &Base{"1", "person"}}
	for _, name := range []string{"apple", "pear", "plum", "fig", "date", "lime", "kiwi", "nut"} {
		b.Items = append(b.Items, Base{name, "fruit"})
		b.Counts[name] = len(name)
	}
	return b
}

func BenchmarkEncode(b *testing.B) {
	b.Run("event", func(b *testing.B) { benchmarkEncode(b, transfer()) })
	b.Run("basket", func(b *testing.B) { benchmarkEncode(b, fullBasket()) })
}

func benchmarkEncode[T any](b *testing.B, v T) {
	b.Helper()
	r := registry[T](b)
	var boxed any = v
	b.Run("codec", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, _, err := r.Encode(boxed); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("library", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := msgpack.Marshal(boxed); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("library with a buffer kept", func(b *testing.B) {
		b.ReportAllocs()
		var w keptBuffer
		enc := msgpack.NewEncoder(&w)
		for b.Loop() {
			w = w[:0]
			if err := enc.Encode(boxed); err != nil {
				b.Fatal(err)
			}
			sink = append([]byte(nil), w...)
		}
	})
}

type keptBuffer []byte

func (w *keptBuffer) Write(p []byte) (int, error) {
	*w = append(*w, p...)
	return len(p), nil
}

func (w *keptBuffer) WriteByte(c byte) error {
	*w = append(*w, c)
	return nil
}

var sink []byte

func BenchmarkDecode(b *testing.B) {
	b.Run("event", func(b *testing.B) { benchmarkDecode(b, transfer()) })
	b.Run("basket", func(b *testing.B) { benchmarkDecode(b, fullBasket()) })
}

func benchmarkDecode[T any](b *testing.B, v T) {
	b.Helper()
	r := registry[T](b)
	manifest, payload, err := r.Encode(v)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("codec", func(b *testing.B) {
		b.ReportAllocs()
		dst := make([]any, 0, 1)
		for b.Loop() {
			if _, err = r.DecodeAppend(dst, manifest, payload); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("check only", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err = codec.Check(payload); err != nil {
				b.Fatal(err)
			}
		}
	})
	theirs, err := msgpack.Marshal(v)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("library", func(b *testing.B) {
		b.ReportAllocs()
		dst := make([]any, 0, 1)
		for b.Loop() {
			var v T
			if err := msgpack.Unmarshal(theirs, &v); err != nil {
				b.Fatal(err)
			}
			dst = append(dst[:0], v)
		}
	})
}

func BenchmarkJSON(b *testing.B) {
	r := registry[transferred](b).Using(codec.JSON())
	manifest, payload, err := r.Encode(transfer())
	if err != nil {
		b.Fatal(err)
	}
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := r.Decode(manifest, payload); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("decode by the library", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var v transferred
			if err := json.Unmarshal(payload, &v); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkState(b *testing.B) {
	st, err := codec.NewState(reflect.TypeFor[*basket]())
	if err != nil {
		b.Fatal(err)
	}
	full := fullBasket()
	data, err := st.Encode(&full)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := st.Encode(&full); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var into basket
			if err := st.Decode(data, &into); err != nil {
				b.Fatal(err)
			}
		}
	})
}

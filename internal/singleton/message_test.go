// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package singleton_test

import (
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/refold-io/refold/internal/singleton"
)

func messages() []singleton.Message {
	return []singleton.Message{
		{Kind: singleton.HandOverToMe, Singleton: "singleton", Round: 1},
		{Kind: singleton.HandOverInProgress, Singleton: "singleton", Round: 300},
		{Kind: singleton.HandOverDone, Singleton: "s", Round: 1<<64 - 1},
		{Kind: singleton.HandOverDone, Singleton: strings.Repeat("x", singleton.MaxNameLength), Round: 2, Hosted: true},
		{Kind: singleton.TakeOverFromMe, Singleton: "singleton"},
		{Kind: singleton.Identify, Singleton: "ä", Round: 7},
		{Kind: singleton.Identified, Singleton: "ä", Round: 7},
		{Kind: singleton.InstanceGone},
	}
}

// Version 1 wrote the golden file, which never changes. Each line is a message.
func TestGoldenMessages(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(filepath.Join("testdata", "v1.golden"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Fields(string(b))
	for i, want := range messages() {
		encoded := singleton.AppendMessage(nil, want)
		if i >= len(lines) || hex.EncodeToString(encoded) != lines[i] {
			t.Errorf("%+v is encoded as %x, which is not line %d of the golden file", want, encoded, i+1)
			continue
		}
		if got, err := singleton.DecodeMessage(encoded); err != nil || got != want {
			t.Errorf("%x is decoded to %+v, %v; want %+v", encoded, got, err, want)
		}
		if got, err := singleton.DecodeMessage(append(encoded, 1, 2, 3)); err != nil || got != want {
			t.Errorf("%x with additional fields is decoded to %+v, %v; want %+v", encoded, got, err, want)
		}
		for n := range encoded {
			if got, err := singleton.DecodeMessage(encoded[:n]); !errors.Is(err, singleton.ErrInvalid) {
				t.Errorf("the truncated message %x is decoded to %+v, %v; want ErrInvalid", encoded[:n], got, err)
			}
		}
	}
}

func TestDecodeInvalidMessage(t *testing.T) {
	t.Parallel()
	for subject, b := range map[string][]byte{
		"empty":           nil,
		"another version": {2, 1, 0, 0, 0},
		"kind 0":          {1, 0, 0, 0, 0},
		"kind 8":          {1, 8, 0, 0, 0},
		"a long round":    {1, 1, 0, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1, 0},
		"a long name":     append([]byte{1, 1, 0, 0, 0x80, 2}, make([]byte, 256)...),
		"a huge name":     {1, 1, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1},
		"too long":        append([]byte{1, 1, 0, 0, 0}, make([]byte, singleton.MaxMessage)...),
	} {
		if got, err := singleton.DecodeMessage(b); !errors.Is(err, singleton.ErrInvalid) {
			t.Errorf("%s: decoded to %+v, %v; want ErrInvalid", subject, got, err)
		}
	}
}

func FuzzDecodeMessage(f *testing.F) {
	for _, m := range messages() {
		f.Add(singleton.AppendMessage(nil, m))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := singleton.DecodeMessage(b)
		if err != nil {
			if !errors.Is(err, singleton.ErrInvalid) {
				t.Errorf("DecodeMessage: %v, want ErrInvalid", err)
			}
			return
		}
		if again, err := singleton.DecodeMessage(singleton.AppendMessage(nil, m)); err != nil || again != m {
			t.Errorf("%+v is encoded and decoded to %+v, %v", m, again, err)
		}
	})
}

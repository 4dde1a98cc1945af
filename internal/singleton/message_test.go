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

// The golden file was written by version 1 and is never rewritten: each line is a message.
func TestMessagesAreEncodedAsEver(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(filepath.Join("testdata", "v1.golden"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Fields(string(b))
	for i, want := range messages() {
		encoded := singleton.AppendMessage(nil, want)
		if i >= len(lines) || hex.EncodeToString(encoded) != lines[i] {
			t.Errorf("%+v is encoded as %x", want, encoded)
			continue
		}
		if got, err := singleton.DecodeMessage(encoded); err != nil || got != want {
			t.Errorf("%x: %+v, %v", encoded, got, err)
		}
		if got, err := singleton.DecodeMessage(append(encoded, 1, 2, 3)); err != nil || got != want {
			t.Errorf("with fields of a newer version: %+v, %v", got, err)
		}
		for n := range encoded {
			if got, err := singleton.DecodeMessage(encoded[:n]); !errors.Is(err, singleton.ErrInvalid) {
				t.Errorf("%x cut off: %+v, %v", encoded[:n], got, err)
			}
		}
	}
}

func TestGarbageIsNoMessage(t *testing.T) {
	t.Parallel()
	for subject, b := range map[string][]byte{
		"nothing":         nil,
		"another version": {2, 1, 0, 0, 0},
		"kind 0":          {1, 0, 0, 0, 0},
		"kind 8":          {1, 8, 0, 0, 0},
		"a long round":    {1, 1, 0, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1, 0},
		"a long name":     append([]byte{1, 1, 0, 0, 0x80, 2}, make([]byte, 256)...),
		"a huge name":     {1, 1, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1},
		"too much":        append([]byte{1, 1, 0, 0, 0}, make([]byte, singleton.MaxMessage)...),
	} {
		if got, err := singleton.DecodeMessage(b); !errors.Is(err, singleton.ErrInvalid) {
			t.Errorf("%s: %+v, %v", subject, got, err)
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
				t.Errorf("%v", err)
			}
			return
		}
		if again, err := singleton.DecodeMessage(singleton.AppendMessage(nil, m)); err != nil || again != m {
			t.Errorf("%+v: %+v, %v", m, again, err)
		}
	})
}

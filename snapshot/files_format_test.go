// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package snapshot_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/refold-io/refold/snapshot"
)

func sample() snapshot.Snapshot {
	return snapshot.Snapshot{
		Metadata: snapshot.Metadata{ID: "account|42", SequenceNr: 100, Time: moment(123456)},
		Manifest: "account/v1",
		Payload:  []byte("the state"),
	}
}

func encoded(tb testing.TB, s snapshot.Snapshot) []byte {
	tb.Helper()
	var b bytes.Buffer
	if err := snapshot.Encode(&b, s); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

// TestFormatMatchesGoldenFile compares the format with a file of an earlier release, which never
// changes.
func TestFormatMatchesGoldenFile(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("testdata", "v1", "account.hex"))
	if err != nil {
		t.Fatal(err)
	}
	golden, err := hex.DecodeString(strings.Join(strings.Fields(string(text)), ""))
	if err != nil {
		t.Fatal(err)
	}
	if got := encoded(t, sample()); !bytes.Equal(got, golden) {
		t.Errorf("encoded as\n%x\nthe golden file is\n%x", got, golden)
	}
	got, err := snapshot.Decode(golden)
	if err != nil || !reflect.DeepEqual(got, sample()) {
		t.Errorf("decoded as %+v, %v, want %+v", got, err, sample())
	}
}

// TestFormatDetectsEveryDamage checks that every flipped bit and every truncation is reported as
// damage: never as another snapshot or a newer version, and without a panic.
func TestFormatDetectsEveryDamage(t *testing.T) {
	t.Parallel()
	whole := encoded(t, sample())
	check := func(subject string, at int, data []byte) {
		t.Helper()
		if s, err := snapshot.Decode(data); err == nil || errors.Is(err, snapshot.ErrNewerVersion) {
			t.Errorf("%s %d: decoded as %+v, %v, want an error about damage", subject, at, s, err)
		}
	}
	for bit := range len(whole) * 8 {
		data := bytes.Clone(whole)
		data[bit/8] ^= 1 << (bit % 8)
		check("bit flipped", bit, data)
	}
	for size := range whole {
		check("truncated to", size, whole[:size])
	}
	for at := range whole {
		data := bytes.Clone(whole)
		clear(data[at:])
		if !bytes.Equal(data, whole) {
			check("zeros from", at, data)
		}
	}
	check("byte appended", 0, append(bytes.Clone(whole), 0))
	check("written twice", 0, append(bytes.Clone(whole), whole...))
}

func TestFormatOfANewerVersion(t *testing.T) {
	t.Parallel()
	data := append([]byte("RFLDSNAP\x02\xfd"), "whatever it will be"...)
	if _, err := snapshot.Decode(data); !errors.Is(err, snapshot.ErrNewerVersion) {
		t.Errorf("Decode: %v, want ErrNewerVersion", err)
	}
}

func FuzzDecodeFile(f *testing.F) {
	f.Add(encoded(f, sample()))
	empty := sample()
	empty.Manifest, empty.Payload = "", nil
	f.Add(encoded(f, empty))
	f.Add([]byte("RFLDSNAP\x01\xfe\xff\xff\xff\xff"))
	f.Add([]byte("RFLDSNAP\x01\xfe\x00\x00\x00\x04"))
	f.Add([]byte("RFLDSNAP\x01\xfe\x1a\x00\x00\x00"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		s, err := snapshot.Decode(data)
		runtime.ReadMemStats(&after)
		if grown, limit := after.TotalAlloc-before.TotalAlloc, uint64(64*len(data)+1<<20); grown > limit {
			t.Errorf("%d bytes allocated for %d bytes of input, want at most %d", grown, len(data), limit)
		}
		if err != nil {
			return
		}
		if s.SequenceNr > math.MaxInt64 || s.ID == "" {
			return // the store never encodes such a snapshot
		}
		if got := encoded(t, s); !bytes.Equal(got, data) {
			t.Errorf("decoded %x is encoded as %x", data, got)
		}
	})
}

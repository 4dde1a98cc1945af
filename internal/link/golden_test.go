// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package link_test

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/refold-io/refold/internal/link"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden file")

// The encoding of frames never changes, because nodes of other releases decode them.
func TestGoldenFrames(t *testing.T) {
	t.Parallel()
	frames := map[string]link.Frame{}
	var names []string
	add := func(name string, f link.Frame) {
		names = append(names, name)
		frames[name] = f
	}
	whole := link.Message{Type: link.Request, Kind: 300, Correlation: 1 << 40, Compressed: true, Payload: []byte("payload")}
	add("datagram", link.Frame{Lane: link.Control, From: alice, Body: link.AppendMessages(nil, tell("join"))})
	add("messages", link.Frame{
		Lane: link.Data, From: alice, To: bob.UID, Sequenced: true, Epoch: 3, Number: 200, Offset: 1 << 33, RequestsCredit: true,
		Body: link.AppendMessages(nil, tell("first"), whole, link.Message{Type: link.Reply, Correlation: 9}),
	})
	add("parts", link.Frame{
		Lane: link.Bulk, From: alice, To: bob.UID, Sequenced: true, Epoch: 3, Number: 201,
		Body: link.AppendPart(link.AppendPart(nil, link.Message{Type: link.Continuation, Payload: []byte("end")}, 0), whole, 1000),
	})
	add("notice", link.Frame{Lane: link.Control, From: alice, To: bob.UID, Body: link.AppendNotice(nil, bob.UID)})

	var b strings.Builder
	for _, name := range names {
		fmt.Fprintf(&b, "%s %s\n", name, hex.EncodeToString(link.AppendFrame(nil, frames[name])))
	}
	path := filepath.Join("testdata", "v1", "frames.golden")
	if *rewrite {
		if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	golden, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(golden) {
		t.Errorf("the encoded frames are\n%s\nwant\n%s", b.String(), golden)
	}
	for line := range strings.Lines(string(golden)) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		data, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		f, err := link.DecodeFrame(data)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		want := frames[name]
		if !bytes.Equal(f.Body, want.Body) {
			t.Errorf("%s: body %x, want %x", name, f.Body, want.Body)
		}
		f.Body, want.Body = nil, nil
		if fmt.Sprint(f) != fmt.Sprint(want) {
			t.Errorf("%s: %+v, want %+v", name, f, want)
		}
	}
}

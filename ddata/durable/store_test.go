// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package durable_test

import (
	"errors"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/refold-io/refold/ddata/durable"
	"github.com/refold-io/refold/identity"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestCheckRecord(t *testing.T) {
	t.Parallel()
	for _, r := range []durable.Record{
		{Key: "a"}, {Key: "\xff\x00"}, {Key: strings.Repeat("k", durable.MaxKey), Data: make([]byte, durable.MaxData)},
	} {
		if err := r.Check(); err != nil {
			t.Errorf("record %.10q: got error %v, want none", r.Key, err)
		}
	}
	for want, r := range map[string]durable.Record{
		`key "" has 0 bytes, want 1 to 512`:                               {Data: []byte("x")},
		`key "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk" has 513 bytes, want 1 to`: {Key: strings.Repeat("k", durable.MaxKey+1)},
		`record of "a" has 16781313 bytes, limit 16781312`:                {Key: "a", Data: make([]byte, durable.MaxData+1)},
	} {
		if err := r.Check(); !errors.Is(err, durable.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want %s", err, want)
		}
	}
}

func TestCheckID(t *testing.T) {
	t.Parallel()
	id := durable.ID{Node: "10.0.0.1:7355", Replicator: "carts"}
	if err := id.Check(); err != nil || id.String() != "carts of 10.0.0.1:7355" {
		t.Errorf("ID %v: got error %v, want no error and both names", id, err)
	}
	for want, id := range map[string]durable.ID{
		"node: ":       {Replicator: "carts"},
		"replicator: ": {Node: "a:1", Replicator: "../b"},
	} {
		if err := id.Check(); !errors.Is(err, durable.ErrInvalid) || !errors.Is(err, identity.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want %s", err, want)
		}
	}
}

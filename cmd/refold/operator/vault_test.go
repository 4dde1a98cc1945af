// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"errors"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/eventsourcing"
)

// vault is an aggregate that encodes its state itself: as JSON, or as one byte.
type vault struct {
	sum int64
}

// safe is the form of a vault in snapshots.
type safe struct {
	Sum int64 `json:"sum"`
}

// own is an application-specific format of one byte.
type own struct{}

func (own) Name() string { return "own" }

func (own) Marshal(v any) ([]byte, error) { return []byte{byte(v.(safe).Sum)}, nil } //nolint:errcheck,forcetypeassert // the only type

func (own) Unmarshal(data []byte, v any) error {
	if len(data) != 1 {
		return errors.New("want one byte")
	}
	v.(*safe).Sum = int64(data[0]) //nolint:errcheck,forcetypeassert // the only type
	return nil
}

func (v *vault) apply(ev event) {
	if e, ok := ev.(deposited); ok {
		v.sum += e.Amount
	}
}

func vaultType() eventsourcing.Type[vault, event] {
	return eventsourcing.Type[vault, event]{
		Name:   "vault",
		Apply:  (*vault).apply,
		Events: events(),
		Snapshots: eventsourcing.Snapshots[vault, event]{State: eventsourcing.StateAs("safe", 0,
			func(v *vault) (safe, error) { return safe{v.sum}, nil },
			func(v *vault, s safe) error { v.sum = s.Sum; return nil }).Using(own{}, codec.JSON())},
	}
}

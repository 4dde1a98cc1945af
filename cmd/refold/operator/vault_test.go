// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"encoding/json"
	"errors"

	"github.com/refold-io/refold/eventsourcing"
)

// vault is an aggregate that encodes its state itself: as JSON, or as one byte.
type vault struct {
	asJSON bool
	sum    int64
}

func (v *vault) HandleCommand(ctx *eventsourcing.Context[command, event], _ command) eventsourcing.Effect[command, event] {
	return ctx.Unhandled()
}

func (v *vault) ApplyEvent(ev event) {
	if e, ok := ev.(deposited); ok {
		v.sum += e.Amount
	}
}

func (v *vault) MarshalSnapshot() ([]byte, error) {
	if v.asJSON {
		return json.Marshal(map[string]int64{"sum": v.sum})
	}
	return []byte{byte(v.sum)}, nil
}

func (v *vault) UnmarshalSnapshot(data []byte) error {
	if !v.asJSON {
		if len(data) != 1 {
			return errors.New("want one byte")
		}
		v.sum = int64(data[0])
		return nil
	}
	var state map[string]int64
	err := json.Unmarshal(data, &state)
	v.sum = state["sum"]
	return err
}

func vaultType() eventsourcing.Type[command, event] {
	return eventsourcing.Type[command, event]{
		Name:   "vault",
		New:    func(id string) eventsourcing.Aggregate[command, event] { return &vault{asJSON: id == "json"} },
		Events: events(),
	}
}

// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdttest

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/refold-io/refold/ddata/crdt"
)

// decoded returns a value encoded and decoded again.
func (w *world[T]) decoded(v crdt.Value) (crdt.Value, error) {
	data, err := v.AppendBinary(nil)
	if err != nil {
		return v, err
	}
	return w.Types.Decode(data)
}

func (w *world[T]) oneForm() error {
	for _, v := range w.values {
		if err := w.valueForm(v); err != nil {
			return err
		}
	}
	for _, c := range w.changes {
		if c.delta.IsZero() {
			continue
		}
		if err := w.deltaForm(c); err != nil {
			return err
		}
	}
	return nil
}

func (w *world[T]) valueForm(v crdt.Value) error {
	data, err := v.AppendBinary(nil)
	if err != nil {
		return err
	}
	input := bytes.Clone(data)
	back, err := w.Types.Decode(input)
	if err != nil {
		return err
	}
	clear(input) // the decoder must not retain it
	if err := w.equal(false, "a value and the same decoded differ", v, back); err != nil {
		return err
	}
	if got, want := w.show(back), w.show(v); got != want {
		return fmt.Errorf("%s is decoded as %s", want, got)
	}
	for i := range data {
		if part, err := w.Types.Decode(data[:i]); err == nil {
			return fmt.Errorf("%d of the %d bytes of a value also decode: %s", i, len(data), w.show(part))
		}
	}
	return nil
}

func (w *world[T]) deltaForm(c change) error {
	data, err := c.delta.AppendBinary(nil)
	if err != nil {
		return err
	}
	input := bytes.Clone(data)
	back, err := w.Types.DecodeDelta(input)
	if err != nil {
		return err
	}
	clear(input)
	again, err := back.AppendBinary(nil)
	if err != nil {
		return err
	}
	if !bytes.Equal(again, data) {
		return fmt.Errorf("a delta is encoded as %x, after decoding as %x", data, again)
	}
	if back.NeedsCausal() != c.delta.NeedsCausal() || back.Ops() != c.delta.Ops() {
		return errors.New("a delta and the decoded delta differ in NeedsCausal or Ops")
	}
	for i := range data {
		if _, err := w.Types.DecodeDelta(data[:i]); err == nil {
			return fmt.Errorf("%d of the %d bytes of a delta also decode", i, len(data))
		}
	}
	for _, v := range []crdt.Value{c.before, back.Zero()} {
		a, err := v.MergeDelta(c.delta)
		if err != nil {
			return err
		}
		b, err := v.MergeDelta(back)
		if err != nil {
			return err
		}
		if err := w.equal(false, "what a delta and the same decoded make differ", a, b); err != nil {
			return err
		}
	}
	return nil
}

// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package crdt

// Flag is false until a node enables it, and true from then on. The zero value is false. It is
// immutable.
type Flag struct{ handle[Flag] }

func (Flag) empty(*Types) shape { return shape{kind: kindFlag} }

// Enable returns the flag set to true.
func (f Flag) Enable() Flag {
	if f.Enabled() {
		return f
	}
	return f.of(&flag{on: true})
}

// Enabled returns the value.
func (f Flag) Enabled() bool {
	c, ok := f.v.(*flag)
	return ok && c.on
}

type flag struct {
	noHistory
	noDeltas
	on bool
}

func (f *flag) resetDelta() core    { return f }
func (f *flag) shape() shape        { return shape{kind: kindFlag} }
func (f *flag) eachNode(*nodeTable) {}

func (f *flag) merge(other core) (core, error) {
	if f.on {
		return f, nil
	}
	return other, nil
}

func (f *flag) encode(e *encoder) {
	b := byte(0)
	if f.on {
		b = 1
	}
	e.dst = append(e.dst, b)
}

func (f *flag) decode(d *decoder) {
	b := d.Byte("flag")
	if b > 1 {
		d.Fail("flag %d", b)
	}
	f.on = b == 1
}

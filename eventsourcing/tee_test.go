// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing_test

import (
	"context"
	"reflect"
	"slices"
	"testing"

	"github.com/refold-io/refold/eventsourcing"
)

// recorder returns an observer with all functions, each of which records its name.
func recorder(name string, note func(string)) eventsourcing.Observer {
	var o eventsourcing.Observer
	v := reflect.ValueOf(&o).Elem()
	for i := range v.NumField() {
		field := v.Type().Field(i)
		v.Field(i).Set(reflect.MakeFunc(field.Type, func(args []reflect.Value) []reflect.Value {
			note(name + "." + field.Name)
			switch field.Name {
			case "Begin":
				i, _ := reflect.TypeAssert[eventsourcing.CommandInfo](args[0])
				return []reflect.Value{reflect.ValueOf(&i.Context).Elem()}
			case "Inject":
				return []reflect.Value{reflect.ValueOf([]byte(name))}
			case "Extract":
				return args[:1]
			}
			return nil
		}))
	}
	return o
}

func TestTee(t *testing.T) {
	t.Parallel()
	var notes []string
	note := func(s string) { notes = append(notes, s) }
	a, b := recorder("a", note), recorder("b", note)
	for _, test := range []struct {
		observer eventsourcing.Observer
		want     []string
	}{
		{eventsourcing.Tee(), nil},
		{eventsourcing.Tee(a), []string{"a"}},
		{eventsourcing.Tee(eventsourcing.Observer{}, b, eventsourcing.Observer{}), []string{"b"}},
		{eventsourcing.Tee(a, b), []string{"a", "b"}},
		{eventsourcing.Tee(a, eventsourcing.Observer{}, b, a), []string{"a", "b", "a"}},
	} {
		v := reflect.ValueOf(test.observer)
		for i := range v.NumField() {
			name, f := v.Type().Field(i).Name, v.Field(i)
			var want []string
			for _, o := range test.want {
				want = append(want, o+"."+name)
			}
			if name == "Inject" || name == "Extract" {
				want = want[:min(1, len(want))]
			}
			notes = nil
			if !f.IsNil() {
				f.Call(zeroes(f.Type()))
			}
			if !slices.Equal(notes, want) {
				t.Errorf("%s: got %v, want %v", name, notes, want)
			}
		}
	}
}

// zeroes returns arguments for a function.
func zeroes(f reflect.Type) (args []reflect.Value) {
	for arg := range f.Ins() {
		switch arg {
		case reflect.TypeFor[context.Context]():
			args = append(args, reflect.ValueOf(context.Background()))
		case reflect.TypeFor[eventsourcing.CommandInfo]():
			args = append(args, reflect.ValueOf(eventsourcing.CommandInfo{Context: context.Background()}))
		default:
			args = append(args, reflect.Zero(arg))
		}
	}
	return args
}

func TestTeePassesOnTheContext(t *testing.T) {
	t.Parallel()
	r, s := newRegister(), newRegister()
	begin := eventsourcing.Tee(r.observer(), s.observer()).Begin
	ctx := begin(eventsourcing.CommandInfo{Context: marked("x")})
	if got := nameIn(ctx); got != "x++" || nameIn(s.begun[0].Context) != "x+" {
		t.Errorf("the context has the name %q and the second Begin got %q, want x++ and x+", got, nameIn(s.begun[0].Context))
	}
}

// TestTeeKeepsInjectAndExtractTogether checks that Inject and Extract come from the same observer.
func TestTeeKeepsInjectAndExtractTogether(t *testing.T) {
	t.Parallel()
	note := func(string) {}
	a, b := recorder("a", note), recorder("b", note)
	a.Extract = nil
	o := eventsourcing.Tee(a, b)
	if o.Extract != nil || string(o.Inject(t.Context())) != "a" {
		t.Error("Inject and Extract come from different observers")
	}
}

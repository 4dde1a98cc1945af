// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing

import "reflect"

// Target is a command that entities of one kind understand: an interface C
// that embeds Target[C] is the set of all commands of that kind. A type becomes
// one of them by embedding For[C, R].
type Target[C any] interface {
	target(C)
}

// Query is a command to a C that is answered with an R. A type becomes one by
// embedding For[C, R].
type Query[C, R any] interface {
	Target[C]
	result(R)
}

// For makes the struct that embeds it a command: understood by entities whose
// commands are C, and answered with an R. It takes up no space.
//
//	type Deposit struct {
//		eventsourcing.For[Command, money.Amount]
//		Amount money.Amount
//	}
type For[C, R any] struct{}

func (For[C, R]) target(C) {}
func (For[C, R]) result(R) {}

// resultType is R.
func (For[C, R]) resultType() reflect.Type { return reflect.TypeFor[R]() }

// With is the answer with a value that is known now: before the events of the same
// effect are applied. For a value that depends on them use Answer. The value must
// not share memory with the state.
func (For[C, R]) With(value R) Answer[C] { return Answer[C]{value: value} }

// Answer is the answer with what f returns. It is called once, right after the
// events of its effect were applied and before any other command is handled, so
// it sees the state just then. The value must not share memory with the state.
func (For[C, R]) Answer(f func() R) Answer[C] { return Answer[C]{value: answerFunc[R](f)} }

// Answer is what a command to a C is answered with; For makes it.
type Answer[C any] struct {
	value any // the answer itself, or a computer
}

type computer interface{ compute() any }

type answerFunc[R any] func() R

func (f answerFunc[R]) compute() any { return f() }

// compute returns the answer as of now.
func (a Answer[C]) compute() any {
	if f, ok := a.value.(computer); ok {
		return f.compute()
	}
	return a.value
}

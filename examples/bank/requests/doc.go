// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package requests lets an aggregate handle a request once, however often it is
// sent: its state holds a Memory of the requests it has done, which is rebuilt by
// the same events.
//
//	func (a *Account) HandleCommand(ctx *Ctx, cmd Command) Effect {
//		...
//		if answer, done, err := a.Requests.Check(c.Request, c.content()); err != nil {
//			return ctx.Refuse(err)
//		} else if done {
//			return ctx.Reply(answer)
//		}
//		...
//	func (a *Account) ApplyEvent(event Event) {
//		...
//		a.Requests.Record(e.Request, e.content(), answer)
//
// The last 1,000 IDs are remembered, each with a fingerprint of what was asked
// and with its answer. IDs that FileLine makes come in order, so of them only the
// highest line of each file is remembered, without limit: every lower line was
// handled before.
//
// A request that was refused leaves no event and is not remembered: when it is
// sent again, it is decided anew, unless a later line of its file was done.
package requests

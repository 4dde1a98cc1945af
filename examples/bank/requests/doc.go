// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package requests lets an aggregate execute a request once, even if it arrives often. The state
// contains a Memory of executed requests, which a replay of the events restores.
//
//	func (a *Account) deposit(ctx *Context[Receipt], c Deposit) Decision[Receipt] {
//		...
//		if answer, done, err := a.Requests.Check(c.Request, c.content()); err != nil {
//			return ctx.Refuse(err)
//		} else if done {
//			return ctx.Reply(answer)
//		}
//		...
//	func (a *Account) apply(event Event) {
//		...
//		a.Requests.Record(e.Request, e.content(), answer)
//
// A Memory stores the last 1,000 IDs, each with a fingerprint of the request and its reply. IDs
// from FileLine arrive in order, so a Memory stores only the highest line of each file, for any
// number of files: all lower lines were handled before.
//
// A refused request leaves no event and is not stored. If the same request arrives again, the
// aggregate decides it again. The exception is a line of a file: after a later line was executed,
// Check returns ErrPassed.
package requests

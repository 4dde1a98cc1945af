// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package register keeps the state of a coordinator in two keys of replicated data: the claims of terms, and a register with the
// state. The store in package sharding and the simulation drive it, each with its own way to the data.
//
// Whoever begins a term first writes a claim to a majority, and reads the state from one behind that. Whoever writes the state, to a
// majority, reads the claims from one behind that, and is acknowledged only if there is no higher one. So of a write and
// a claim, one sees the other: either the claimant reads what was written, or the writer reads the claim.
// Two that claim the same term both see each other, or one of them is not acknowledged.
package register
